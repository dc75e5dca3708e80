// The subcommands of the second program, tenon-training: the ones that compute with tensors.
#pragma once

#include <string>

namespace tenon::command {

struct TrainingCommand {
  const char* name;
  const char* about;
};
inline constexpr TrainingCommand kTrain{"train", "Train a model, and show where its bytes went"};
inline constexpr TrainingCommand kGenerate{"generate",
                                           "Write text with a model of tenon train text"};
inline constexpr TrainingCommand kVectors{
    "vectors", "Run every operator of a directory of test vectors and compare the results"};
inline constexpr TrainingCommand kTrainingCommands[] = {kVectors, kGenerate, kTrain};

// "report-misuse MESSAGE", for report_misuse_once() only: fails with the message.
inline constexpr const char* kReportMisuse = "report-misuse";

inline constexpr const char* kTrainingProgram = "tenon-training";

// The program's file: beside this program, or in libexec/tenon or lib/tenon next to its folder.
// Empty when it is in none of them.
std::string find_training_program();

// True when the arguments name one of the commands above, or fleet on several ranks, which only
// that program can join.
bool needs_training_program(int argc, char** argv);

// Replaces this process by the program, with the same arguments. Returns, with the exit status,
// only when that fails.
int become_training_program(char** argv);

// Of several ranks whose arguments cannot be parsed one reports it: this process is replaced by
// that program, which can join the ranks. Returns where there is one rank, or no such program.
void report_misuse_once(const std::string& message);

}  // namespace tenon::command
