#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace draftscope::testing {

/// Returns a machine profile of the tiny model with eagle2, its heads full, microspec and fr-spec, and ngram.
/// Drafts take about `draft` milliseconds.
inline std::string tiny_profile(int vocab, const std::string& precision = "f32", double draft = 1,
                                const std::string& backend = "cpu") {
    using nlohmann::json;
    const auto part = [](const char* what, const char* key, const char* owner, const json& terms) {
        return json{{"part", what}, {key, owner}, {"terms", terms}};
    };
    json profile = {{"format", "draftscope-profile"},
                    {"version", 1},
                    {"kind", "measured"},
                    {"source", "test"},
                    {"machine", "test machine"},
                    {"backend", backend},
                    {"precision", precision},
                    {"model", "tiny"},
                    {"vocab", vocab},
                    {"hidden", 64},
                    {"layers", 2}};
    json microspec = part("head", "head", "microspec", {{"fixed", 0.1 * draft}, {"size", 0.001 * draft}});
    microspec["drafter"] = "eagle2";
    microspec["size_parameter"] = "wmax";
    json full = part("head", "head", "full", {{"fixed", 0.5 * draft}});
    full["drafter"] = "eagle2";
    json fr_spec = part("head", "head", "fr-spec", {{"fixed", 0.1 * draft}, {"size", 0.001 * draft}});
    fr_spec["drafter"] = "eagle2";
    fr_spec["size_parameter"] = "v";
    profile["costs"] = json::array({{{"part", "verify"}, {"terms", {{"fixed", 5.0}, {"row", 0.001}}}},
                                    {{"part", "overhead"}, {"terms", {{"fixed", 0.5}}}},
                                    part("catch_up", "drafter", "eagle2", {{"fixed", 0.2 * draft}}),
                                    part("level", "drafter", "eagle2", {{"fixed", 0.3 * draft}}),
                                    full,
                                    microspec,
                                    fr_spec,
                                    part("draft", "drafter", "ngram", {{"fixed", 0.1 * draft}})});
    return profile.dump();
}

}  // namespace draftscope::testing
