#pragma once

#include <string>

#include "app/jobs/commands.h"

namespace CLI {
class App;
}

namespace draftscope::cli {

/// "full, fr-spec, ..."
std::string known_heads();
/// How to decode, heads apart: the options that `run` and `bench` share.
void add_decoding_options(CLI::App& command, RunConfig& config);

}  // namespace draftscope::cli
