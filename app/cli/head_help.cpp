#include "app/cli/head_help.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/heads/registry.h"

namespace draftscope {
namespace {

constexpr std::size_t width = 96;

/// Wraps `text` into indented lines.
std::string wrap_text(std::string_view text, std::size_t indent) {
    std::string out;
    while (!text.empty()) {
        std::size_t end = text.size();
        if (indent + end > width) {
            end = text.rfind(' ', width - indent);
            if (end == std::string_view::npos || end == 0) end = text.size();
        }
        out += std::string(indent, ' ') + std::string(text.substr(0, end)) + '\n';
        text.remove_prefix(std::min(text.size(), end + 1));
    }
    return out;
}

std::string value_text(const HeadParam& param) {
    if (!param.choices.empty()) return fmt::format("{}={}", param.name, param.choices);
    if (param.default_value == 0 && param.min > 0) return fmt::format("{}=", param.name);
    return fmt::format("{}={}", param.name, param.default_value);
}

}  // namespace

std::string head_help() {
    std::string text = "Heads, as --head NAME:key=value,... (of values a|b|c the first is the default):\n";
    for (const HeadInfo& info : head_registry()) {
        text += fmt::format("  {:<12} {}\n", info.id, info.paper);
        if (!info.artefact.empty()) text += wrap_text(fmt::format("needs: {}", info.artefact), 15);
        if (info.replay_only) text += wrap_text("hypothetical: knows the recorded text; only for replay", 15);
        for (const HeadParam& param : info.params)
            text += wrap_text(fmt::format("{}  {}{}", value_text(param), param.help,
                                          param.our_default ? " [our default]" : ""),
                              15);
    }
    const HeadInfo& suffix = rdk_suffix();
    text += fmt::format("  {:<12} {}\n", suffix.name, suffix.paper);
    text += wrap_text(
        "suffix of any spec, with --verify pq: redistributes probability to tokens that the head lacks", 15);
    text += wrap_text(fmt::format("needs: {}", suffix.artefact), 15);
    return text;
}

}  // namespace draftscope
