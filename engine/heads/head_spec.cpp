#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/did_you_mean.h"
#include "base/parse.h"
#include "engine/heads/factories.h"
#include "engine/heads/head.h"
#include "engine/heads/linear_lm_head.h"
#include "engine/heads/rdk.h"

namespace draftscope {
namespace {

/// The parameter that every head with a file has: the path of its weights or ranking.
constexpr std::string_view file_parameter = "file";

Result<double> parse_number(std::string_view head, std::string_view name, std::string_view value) {
    const auto number = draftscope::parse_number<double>(value);
    if (!number || !std::isfinite(*number))
        return bad_input("head {}: {}={} is not a number", head, name, value);
    return *number;
}

/// Splits "a/b/c"; one piece without a slash.
std::vector<std::string_view> split_list(std::string_view text) {
    std::vector<std::string_view> pieces;
    while (true) {
        const auto slash = text.find('/');
        pieces.push_back(trim(text.substr(0, slash)));
        if (slash == std::string_view::npos) return pieces;
        text.remove_prefix(slash + 1);
    }
}

Status check_number(const HeadInfo& info, const HeadParam& param, std::string_view value) {
    DS_ASSIGN(const double number, parse_number(info.id, param.name, value));
    if (number < param.min || number > param.max)
        return bad_input("head {}: {}={} is outside {}..{}", info.id, param.name, value, param.min,
                         param.max);
    return {};
}

Status check_word(const HeadInfo& info, const HeadParam& param, std::string_view value) {
    std::string_view rest = param.choices;
    while (true) {
        const auto bar = rest.find('|');
        if (rest.substr(0, bar) == value) return {};
        if (bar == std::string_view::npos)
            return bad_input("head {}: {}={} is not one of {}", info.id, param.name, value, param.choices);
        rest.remove_prefix(bar + 1);
    }
}

Result<int> parse_int(std::string_view head, std::string_view name, std::string_view value) {
    DS_ASSIGN(const double number, parse_number(head, name, value));
    if (number != std::floor(number) || std::abs(number) > 1e9)
        return bad_input("head {}: {}={} is not a whole number", head, name, value);
    return static_cast<int>(number);
}

Status check_param(const HeadInfo& info, std::string_view name, std::string_view value) {
    const auto param = std::find_if(info.params.begin(), info.params.end(),
                                    [&](const HeadParam& p) { return p.name == name; });
    if (param == info.params.end()) {
        std::vector<std::string_view> known;
        for (const HeadParam& p : info.params) known.push_back(p.name);
        return bad_input("head {}: unknown parameter {}={}; {}{}", info.id, name, value,
                         known.empty() ? "it takes none" : fmt::format("known: {}", fmt::join(known, ", ")),
                         did_you_mean(name, known));
    }
    if (!param->choices.empty()) return check_word(info, *param, value);
    if (!param->list) return check_number(info, *param, value);
    for (const std::string_view piece : split_list(value)) DS_TRY(check_number(info, *param, piece));
    return {};
}

}  // namespace

Result<HeadSpec> parse_head_spec(std::string_view text) {
    constexpr std::string_view suffix = "+rdk";
    std::string_view body = trim(text);
    HeadSpec spec;
    spec.rdk = body.ends_with(suffix);
    if (spec.rdk) body = trim(body.substr(0, body.size() - suffix.size()));
    const auto colon = body.find(':');
    spec.id = std::string(trim(body.substr(0, colon)));
    if (spec.id.empty()) return bad_input("head: \"{}\" names no head; use NAME or NAME:key=value,...", text);
    if (colon == std::string_view::npos) return spec;
    std::string_view rest = body.substr(colon + 1);
    while (true) {
        const auto comma = rest.find(',');
        const std::string_view piece = trim(rest.substr(0, comma));
        const auto equals = piece.find('=');
        const std::string name(trim(piece.substr(0, equals)));
        const std::string_view value =
            equals == std::string_view::npos ? std::string_view{} : trim(piece.substr(equals + 1));
        if (name.empty() || value.empty())
            return bad_input("head {}: \"{}\" is not key=value in \"{}\"", spec.id, piece, text);
        const bool is_first =
            name == file_parameter ? spec.file.empty() : spec.params.emplace(name, value).second;
        if (name == file_parameter) spec.file = std::string(value);
        if (!is_first) return bad_input("head {}: {} is given twice in \"{}\"", spec.id, name, text);
        if (comma == std::string_view::npos) return spec;
        rest.remove_prefix(comma + 1);
    }
}

std::string to_text(const HeadSpec& spec) {
    std::string text = spec.id;
    char separator = ':';
    if (!spec.file.empty()) {
        text += fmt::format(":{}={}", file_parameter, spec.file);
        separator = ',';
    }
    for (const auto& [name, value] : spec.params) {
        text += fmt::format("{}{}={}", separator, name, value);
        separator = ',';
    }
    return spec.rdk ? text + "+rdk" : text;
}

Status check_head_spec(const HeadSpec& spec) {
    const HeadInfo* info = find_head(spec.id);
    if (info == nullptr) {
        std::vector<std::string_view> known;
        for (const HeadInfo& row : head_registry()) known.push_back(row.id);
        return bad_input("unknown head {}; known: {}{}", spec.id, fmt::join(known, ", "),
                         did_you_mean(spec.id, known));
    }
    for (const auto& [name, value] : spec.params) DS_TRY(check_param(*info, name, value));
    return {};
}

Result<std::unique_ptr<LmHead>> make_head(const HeadSpec& spec, const HeadFiles& artefacts) {
    DS_TRY(check_head_spec(spec));
    DS_ASSIGN(auto head, find_head(spec.id)->make(spec, artefacts));
    if (word_param(spec, softmax_param.name, "fused") == "separate")
        dynamic_cast<LinearLmHead&>(*head).separate_softmax();
    if (!spec.rdk) return head;
    DS_ASSIGN(HeadArtefact affinity, required_affinity(spec, artefacts));
    return make_rdk_head(std::move(head), std::move(affinity));
}

Result<double> number_param(const HeadSpec& spec, std::string_view name, double fallback) {
    const auto found = spec.params.find(name);
    if (found == spec.params.end()) return fallback;
    return parse_number(spec.id, name, found->second);
}

std::string_view word_param(const HeadSpec& spec, std::string_view name, std::string_view fallback) {
    const auto found = spec.params.find(name);
    return found == spec.params.end() ? fallback : std::string_view(found->second);
}

Result<int> int_param(const HeadSpec& spec, std::string_view name, int fallback) {
    const auto found = spec.params.find(name);
    if (found == spec.params.end()) return fallback;
    return parse_int(spec.id, name, found->second);
}

Result<std::vector<int>> int_list_param(const HeadSpec& spec, std::string_view name) {
    std::vector<int> values;
    const auto found = spec.params.find(name);
    if (found == spec.params.end()) return values;
    for (const std::string_view piece : split_list(found->second)) {
        DS_ASSIGN(const int value, parse_int(spec.id, name, piece));
        values.push_back(value);
    }
    return values;
}

}  // namespace draftscope
