// What an MPI launcher tells the processes that it starts, by its variables.
#pragma once

namespace tenon::command {

// How many processes the launcher started; 1 without one.
int launched_ranks();
// Of these, those on this machine.
int launched_ranks_here();

}  // namespace tenon::command
