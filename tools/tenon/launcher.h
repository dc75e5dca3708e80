// What an MPI launcher tells the processes that it starts, by its variables.
#pragma once

namespace tenon::command {

// How many processes the launcher started; 1 without one.
int launched_ranks();
// Of these, those on this machine.
int launched_ranks_here();
// This process's number among them, from 0; 0 without one.
int launched_rank();

// Messages name the rank from now on. A failure is reported only after a time that is longer for
// higher ranks. A launcher ends the others when one has failed, so of several ranks that fail only
// the lowest reports.
void report_as_rank(int rank);
// For a failure of all ranks, none of which knows of the others: ranks above 0 end without a word.
void report_as_first_rank();

}  // namespace tenon::command
