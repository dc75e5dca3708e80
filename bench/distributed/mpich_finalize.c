// Whether MPI_Finalize returns, after collectives and without Tenon: at once, or, with the word
// "apart", as ranks of Tenon end (Note [Apart at the end] in distributed/mpi_group.cc).
// scripts/bench_distributed.py --only finalize runs it with MPICH over TCP.
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  enum { kBytes = 100000 };
  int ranks = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char* in = calloc(ranks, kBytes);
  char* out = calloc(ranks, kBytes);
  for (int i = 0; i < 20; ++i) {
    MPI_Request request;
    MPI_Ialltoall(in, kBytes, MPI_BYTE, out, kBytes, MPI_BYTE, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (argc > 1 && strcmp(argv[1], "apart") == 0) {
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (int done = 0; !done; usleep(1000)) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    usleep(500000);
  }
  MPI_Finalize();
  free(in);
  free(out);
  return 0;
}
