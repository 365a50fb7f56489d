// base/unexpected.h -- exceptions that nobody expected, in words: memory that ran out, or a bug of
// ours. Not here: errors of the user's, which are diagnostics.
#pragma once

#include <exception>
#include <string>

namespace cad {

// An allocation, or the start of a thread for want of memory.
bool is_out_of_memory(const std::exception& error);

// "not enough memory: an allocation was refused", "internal error: ..".
std::string unexpected_text(const std::exception& error);

// Whatever no one catches, on any thread, ends the process as these do: with a line on standard
// error and status 1 when memory ran out, with 70 else.
void report_on_terminate();

}  // namespace cad
