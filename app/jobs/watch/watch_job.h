#pragma once

#include <string>
#include <vector>

#include "app/jobs/run/prompt_file.h"
#include "base/job_hooks.h"
#include "storage/import/import_rounds.h"

/// Sends prompts to a running server of another engine, and imports its rounds as they come.
namespace draftscope {

struct WatchConfig {
    std::string url;                          ///< "http://127.0.0.1:8080"
    std::string engine;                       ///< llama.cpp, vllm or sglang; "" = asked of the server
    std::string model;                        ///< name that the server knows; "" = its first
    std::vector<Conversation> conversations;  ///< first turns are sent, one after another
    int max_new = 128;
    double temperature = 0;
    std::uint64_t seed = 0;
    double timeout_s = 60;
    std::vector<std::string> headers;  ///< "Name: value"; kept nowhere
    std::string words;                 ///< file that keeps the server's words, for `import`; "" = none
    RoundsOptions rounds;
};

struct WatchReport {
    RoundsReport rounds;
    std::string engine;  ///< as found
    int prompts = 0;     ///< answered
    std::string ended;   ///< why later prompts were not sent; "" = all were
};

/// Returns the names of the engines that can be watched: "llama.cpp, vllm, sglang".
std::string known_servers();

/// Sends the prompts and passes the rounds to `sink`. Blocks. A server that refuses or goes away ends the
/// watch; what came before is kept, and an error is returned only if nothing came.
Result<WatchReport> watch(const WatchConfig& config, RecordSink& sink, const JobHooks& hooks);

}  // namespace draftscope
