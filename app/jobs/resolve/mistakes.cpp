#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <regex>
#include <string_view>
#include <variant>

#include "app/jobs/resolve/resolve.h"
#include "base/did_you_mean.h"
#include "base/parse.h"

namespace draftscope {
namespace {

/// A field's label, the beginnings of messages about it, and the member that it edits.
struct SessionField {
    std::string_view label;
    std::initializer_list<std::string_view> beginnings;
    std::variant<std::string RunConfig::*, int RunConfig::*, double RunConfig::*, std::uint64_t RunConfig::*,
                 std::vector<std::string> RunConfig::*>
        member;

    /// Returns the member as text; of a list the first one.
    std::string get(const RunConfig& config) const {
        return std::visit(
            [&](auto value) {
                if constexpr (std::is_same_v<decltype(value), std::vector<std::string> RunConfig::*>)
                    return (config.*value).empty() ? std::string() : (config.*value).front();
                else
                    return fmt::format("{}", config.*value);
            },
            member);
    }
    /// A text that is no number leaves a number as it is.
    void set(RunConfig& config, const std::string& text) const {
        const auto write = [&]<typename Value>(Value& value) {
            if constexpr (std::is_same_v<Value, std::string>)
                value = text;
            else if constexpr (std::is_arithmetic_v<Value>)
                value = parse_number<Value>(text).value_or(value);
            else
                value = text.empty() ? Value() : Value{text};
        };
        std::visit([&](auto value) { write(config.*value); }, member);
    }
};

const SessionField fields[] = {
    {"Model", {"--model"}, &RunConfig::model},
    {"Drafter", {"--drafter"}, &RunConfig::drafter},
    {"Shadow heads", {"--shadow"}, &RunConfig::shadow},
    {"Head's file", {"--head-weights"}, &RunConfig::artefacts},
    {"Head", {"--head ", "--head:", "head ", "head:", "unknown head"}, &RunConfig::head},
    {"Tree", {"--tree", "tree:"}, &RunConfig::tree},
    {"Verify", {"--verify", "verify"}, &RunConfig::verify},
    {"Precision", {"--precision"}, &RunConfig::precision},
    {"New tokens", {"--max-new"}, &RunConfig::max_new},
    {"Context", {"--context"}, &RunConfig::context},
    {"Batch", {"--batch"}, &RunConfig::batch},
    {"Threads", {"--threads"}, &RunConfig::threads},
    {"Temperature", {"--temperature"}, &RunConfig::temperature},
    {"Top p", {"--top-p"}, &RunConfig::top_p},
    {"Top k", {"--top-k"}, &RunConfig::top_k},
    {"Seed", {"--seed"}, &RunConfig::seed},
    {"Prompt file", {"--prompts"}, &RunConfig::prompts_file},
    {"Limit", {"--limit"}, &RunConfig::limit},
    {"AR baseline", {"--baseline"}, &RunConfig::baseline},
    {"Calibration", {"--calibrate"}, &RunConfig::calibration_rounds},
    {"Capture file", {"--save"}, &RunConfig::save},
    {"Prompt", {"nothing to decode"}, &RunConfig::prompt},
};

const SessionField* find_field(std::string_view message) {
    for (const SessionField& field : fields)
        for (const std::string_view beginning : field.beginnings)
            if (message.starts_with(beginning)) return &field;
    return nullptr;
}

/// Length of a message up to which it is matched: std::regex recurses, and a pasted text may be long.
constexpr std::size_t max_matched = 4000;

/// Returns the value with its word closest to `name` replaced by it.
std::string replace_word(const std::string& value, const std::string& name) {
    static const std::regex word("[A-Za-z0-9_-]+");
    const std::string_view known[] = {name};
    for (std::sregex_iterator at(value.begin(), value.end(), word), end; at != end; ++at)
        if (at->str() != name && !closest_name(at->str(), known).empty())
            return value.substr(0, static_cast<std::size_t>(at->position())) + name + at->suffix().str();
    return "";
}

/// Returns the value with its path's last part replaced by the most similar name of that folder.
std::string similar_path(const std::string& value) {
    namespace fs = std::filesystem;
    const std::size_t first = value.find_first_of(":=") + 1;  // of "NAME:PATH" and "HEAD=PATH"
    const fs::path path = value.substr(first);
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path.parent_path(), error))
        names.push_back(entry.path().filename().string());
    const std::vector<std::string_view> known(names.begin(), names.end());
    const std::string name(closest_name(path.filename().string(), known));
    return name.empty() ? "" : value.substr(0, first) + (path.parent_path() / name).string();
}

/// Returns the value that the message proposes; "" = it proposes none.
std::string proposed(const std::string& value, const std::string& message) {
    static const std::regex meant("did you mean ([^?]+)\\?"),
        keyed("([a-z_]+=)([0-9.-]+)[^ ,;]* (?:is|exceeds) "),
        range("(-?[0-9.]*[0-9])(?:\\.\\.| to )([0-9.]*[0-9])"),
        least("(?:at least|of) ([0-9]+)|not be negative");
    if (message.size() > max_matched) return "";
    std::smatch found, refused;
    if (std::regex_search(message, found, meant)) return replace_word(value, found[1]);
    if (message.find("no such file") != std::string::npos) return similar_path(value);
    const bool ranged = std::regex_search(message, found, range);
    if (!ranged && !std::regex_search(message, found, least)) return "";
    const bool part = std::regex_search(message, refused, keyed);
    const auto number = parse_number<double>(part ? refused[2].str() : value);
    if (!number) return "";
    double nearest = std::max(*number, parse_number<double>(found[1].str()).value_or(0));
    if (ranged) nearest = std::min(nearest, parse_number<double>(found[2].str()).value_or(nearest));
    const std::size_t at = part ? value.find(refused[1].str() + refused[2].str()) : 0;
    if (at == std::string::npos) return "";
    const std::size_t end = std::min(value.find(',', at), value.size());
    return value.substr(0, at) + (part ? refused[1].str() : "") + fmt::format("{}", nearest) +
           value.substr(end);
}

}  // namespace

std::string nearest_valid(std::string value, std::string message,
                          const std::function<std::string(const std::string&)>& check) {
    constexpr int max_parts = 4;  // that may be wrong at the same time
    for (int part = 0; part < max_parts && !message.empty(); ++part) {
        const std::string next = proposed(value, message);
        if (next.empty()) return part == 0 ? "" : value;
        value = next;
        message = check(value);
    }
    return value;
}

std::vector<Mistake> find_mistakes(RunConfig config) {
    std::vector<Mistake> mistakes;
    while (true) {
        const Status status = validate(config);
        if (status.ok()) return mistakes;
        const std::string& message = status.error().message;
        const SessionField* field = find_field(message);
        const std::string label(field == nullptr ? std::string_view() : field->label);
        const bool again = std::ranges::any_of(mistakes, [&](const Mistake& m) { return m.field == label; });
        if (!again) mistakes.push_back({label, message});
        if (again || field == nullptr) return mistakes;
        mistakes.back().nearest = nearest_valid(field->get(config), message, [&](const std::string& value) {
            RunConfig tried = config;
            field->set(tried, value);
            const Status checked = validate(tried);
            const bool accepted = checked.ok() || find_field(checked.error().message) != field;
            return accepted ? std::string() : checked.error().message;
        });
        field->set(config, label == "Prompt" ? "text" : field->get(RunConfig()));
    }
}

std::string without_option(const std::string& message) {
    static const std::regex beginning("^(--[a-z-]+|head|tree|verify)( .*?)?:+ (.*/.*: (?=no such ))?");
    if (message.size() > max_matched) return message;
    return std::regex_replace(message, beginning, "", std::regex_constants::format_first_only);
}

std::string to_text(const std::vector<Mistake>& mistakes) {
    std::string text;
    for (const Mistake& mistake : mistakes) {
        if (!text.empty()) text += "\n";
        text +=
            mistake.field.empty() ? mistake.message : mistake.field + ": " + without_option(mistake.message);
    }
    return text;
}

}  // namespace draftscope
