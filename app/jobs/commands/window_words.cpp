#include <algorithm>
#include <regex>

#include "app/jobs/commands/commands.h"

namespace draftscope {
namespace {

/// Returns what the window calls an option; other texts as they are.
std::string window_name(const std::string& option) {
    static const std::map<std::string, std::string> names = {{"--tree quick", "tree \"fastest by forecast\""},
                                                             {"--tree auto", "tree \"fastest by measuring\""},
                                                             {"--head auto", "the automatic head"},
                                                             {"--head-weights", "head's file"},
                                                             {"--max-new", "new tokens"},
                                                             {"--prompts", "prompt file"},
                                                             {"--prompt TEXT", "a prompt"},
                                                             {"--prompts FILE.jsonl", "a prompt file"},
                                                             {"--shadow", "shadow heads"},
                                                             {"--calibrate", "calibration"},
                                                             {"--baseline", "AR baseline"},
                                                             {"--save", "capture file"},
                                                             {"run --save", "\"Save a copy\""},
                                                             {"--raw", "\"no chat template\""}};
    if (const auto found = names.find(option); found != names.end()) return found->second;
    if (!option.starts_with("--") || option.starts_with("--cap-add") || option.starts_with("--per-request"))
        return option;
    std::string name = option.substr(2);
    std::ranges::replace(name, '-', ' ');
    return name;
}

/// std::regex recurses, and a message may quote a long text.
constexpr std::size_t max_matched = 4000;

}  // namespace

std::string to_window_words(std::string_view message) {
    // Commands stay as they are, and so do other programs' options. A command ends before the next part of
    // the sentence.
    static const std::regex part(
        "(?:draftscope|nsys|hf|trace_processor) (?:(?! and | or )[^;,()])*|--(?:cap-add|per-request)[^ ]*|"
        "run --save|--prompt TEXT|--prompts FILE.jsonl|--tree (?:quick|auto)\\b|--head "
        "auto\\b|--[a-z][a-z0-9-]*");
    std::string rest(message), out;
    if (rest.size() > max_matched) return rest;
    for (std::smatch found; std::regex_search(rest, found, part); rest = found.suffix().str()) {
        out += found.prefix().str();
        out += window_name(found.str());
    }
    return out + rest;
}

}  // namespace draftscope
