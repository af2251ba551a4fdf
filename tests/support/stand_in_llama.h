#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/stand_in_server.h"

namespace draftscope::testing {

/// A chunk of llama.cpp's /completion; counters are those since the start of the request.
inline std::string llama_chunk(int token, int tokens, double ms, int drafted, int accepted) {
    nlohmann::json out = {{"content", "x"},
                          {"tokens", {token}},
                          {"stop", false},
                          {"timings",
                           {{"prompt_n", 5},
                            {"cache_n", 0},
                            {"prompt_ms", 9.5},
                            {"predicted_n", tokens},
                            {"predicted_ms", ms}}}};
    if (drafted > 0) out["timings"].update({{"draft_n", drafted}, {"draft_n_accepted", accepted}});
    return "data: " + out.dump() + "\n\n";
}

inline std::string last_llama_chunk() {
    return "data: " +
           nlohmann::json{
               {"content", ""},
               {"tokens", nlohmann::json::array()},
               {"stop", true},
               {"stop_type", "limit"},
               {"model", "tiny.gguf"},
               {"prompt", "<user>Say it"},
               {"generation_settings", {{"temperature", 0.0}, {"speculative.types", "none,draft-eagle3"}}},
               {"timings",
                {{"prompt_n", 5},
                 {"cache_n", 0},
                 {"prompt_ms", 9.5},
                 {"predicted_n", 7},
                 {"predicted_ms", 60.0},
                 {"draft_n", 6},
                 {"draft_n_accepted", 3}}}}
               .dump() +
           "\n\n";
}

/// The answer to one prompt in pieces. A token of the prefill is followed by a round of 3 drafts with 2
/// accepted, one without drafts, and one of 3 with 1 accepted.
inline std::vector<std::string> llama_stream() {
    return {llama_chunk(4, 1, 0.001, 0, 0), llama_chunk(5, 2, 20, 3, 2), llama_chunk(6, 3, 20, 3, 2),
            llama_chunk(7, 4, 20, 3, 2),    llama_chunk(8, 5, 30, 3, 2), llama_chunk(9, 6, 60, 6, 3),
            llama_chunk(10, 7, 60, 6, 3),   last_llama_chunk()};
}

/// Plays llama.cpp's server; `completion` answers the prompts.
inline StandInServer::Answer play_llama_server(const StandInServer::Request& request,
                                               const StandInServer::Answer& completion) {
    if (request.path == "/props")
        return {200,
                {nlohmann::json{{"default_generation_settings", nlohmann::json::object()},
                                {"model_path", "/m/tiny.gguf"}}
                     .dump()}};
    if (request.path == "/v1/models")
        return {200, {nlohmann::json{{"data", {{{"id", "tiny.gguf"}}}}}.dump()}};
    if (request.path == "/apply-template") return {200, {nlohmann::json{{"prompt", "<user>Say it"}}.dump()}};
    const bool streams = request.body.find("\"stream\":true") != std::string::npos;
    if (request.path == "/completion" && !streams)
        return {200,
                {nlohmann::json{{"model", "/m/tiny.gguf"},
                                {"generation_settings", {{"speculative.types", "none,draft-eagle3"}}}}
                     .dump()}};
    if (request.path == "/completion") return completion;
    return {404, {"no such path"}};
}

}  // namespace draftscope::testing
