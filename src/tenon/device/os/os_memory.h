// The system's calls for addresses and pages (POSIX and Linux). Shared by the host's backend and
// by simulated devices with real memory.
#pragma once

#include <cstdint>

namespace tenon::os {

std::uint64_t page_size();
// Addresses that the process may use (ulimit -v); 0: as many as there are.
std::uint64_t address_limit_bytes();

// Addresses without memory, unreadable. `alignment` is a power of two. Null: none left.
void* reserve(std::uint64_t size_bytes, std::uint64_t alignment);
// Fresh zeroed private memory at a multiple of `alignment`. Null: out of memory.
void* allocate(std::uint64_t size_bytes, std::uint64_t alignment);
// A hint; without effect where the system has no huge pages.
void ask_for_huge_pages(void* base, std::uint64_t size_bytes);
// Gives addresses and the private memory behind them back.
void release(void* base, std::uint64_t size_bytes);

// A hint that the contents of these whole pages of private memory are not needed any more: their
// memory goes back to the system, and they read as zeros. The addresses stay.
void forget(void* base, std::uint64_t size_bytes);

// A file that lives in memory only. -1 with errno when the system refuses.
int create_file(const char* name, std::uint64_t size_bytes);
// Gives the memory of this part of the file back; it reads as zeros afterwards.
void discard(int file, std::uint64_t offset, std::uint64_t size_bytes);

// Puts a part of the file at a reserved address, unreadable until make_accessible. False with
// errno.
bool map_file(void* address, std::uint64_t size_bytes, int file, std::uint64_t offset);
bool make_accessible(void* address, std::uint64_t size_bytes);
// Back to a reserved address without memory. False with errno.
bool unmap_file(void* address, std::uint64_t size_bytes);

}  // namespace tenon::os
