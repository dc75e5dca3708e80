// To be preloaded: an MPI that was built without support for threads.
#include <mpi.h>

extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int status = PMPI_Init_thread(argc, argv, required, provided);
  *provided = MPI_THREAD_SINGLE;
  return status;
}
