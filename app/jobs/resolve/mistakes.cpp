#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "app/jobs/resolve/resolve.h"

namespace draftscope {
namespace {

/// A field's label, the beginnings of messages about it, and a function that resets it to the default.
struct SessionField {
    std::string_view label;
    std::initializer_list<std::string_view> beginnings;
    void (*reset)(RunConfig& config, const RunConfig& defaults);
};

template <auto member>
void reset(RunConfig& config, const RunConfig& defaults) {
    config.*member = defaults.*member;
}

const SessionField fields[] = {
    {"Model", {"--model"}, reset<&RunConfig::model>},
    {"Drafter", {"--drafter"}, reset<&RunConfig::drafter>},
    {"Shadow heads", {"--shadow"}, reset<&RunConfig::shadow>},
    {"Head", {"--head ", "--head:", "head ", "head:", "unknown head"}, reset<&RunConfig::head>},
    {"Tree", {"--tree", "tree:"}, reset<&RunConfig::tree>},
    {"Verify", {"--verify", "verify"}, reset<&RunConfig::verify>},
    {"Precision", {"--precision"}, reset<&RunConfig::precision>},
    {"New tokens", {"--max-new"}, reset<&RunConfig::max_new>},
    {"Context", {"--context"}, reset<&RunConfig::context>},
    {"Batch", {"--batch"}, reset<&RunConfig::batch>},
    {"Threads", {"--threads"}, reset<&RunConfig::threads>},
    {"Temperature", {"--temperature"}, reset<&RunConfig::temperature>},
    {"Top p", {"--top-p"}, reset<&RunConfig::top_p>},
    {"Top k", {"--top-k"}, reset<&RunConfig::top_k>},
    {"Seed", {"--seed"}, reset<&RunConfig::seed>},
    {"Prompt file", {"--prompts"}, reset<&RunConfig::prompts_file>},
    {"Limit", {"--limit"}, reset<&RunConfig::limit>},
    {"AR baseline", {"--baseline"}, reset<&RunConfig::baseline>},
    {"Calibration", {"--calibrate"}, reset<&RunConfig::calibration_rounds>},
    {"Capture file", {"--save"}, reset<&RunConfig::save>},
    {"Prompt", {"nothing to decode"}, [](RunConfig& config, const RunConfig&) { config.prompt = "text"; }},
};

const SessionField* find_field(std::string_view message) {
    for (const SessionField& field : fields)
        for (const std::string_view beginning : field.beginnings)
            if (message.starts_with(beginning)) return &field;
    return nullptr;
}

}  // namespace

std::vector<Mistake> find_mistakes(RunConfig config) {
    const RunConfig defaults;
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
        field->reset(config, defaults);
    }
}

std::string to_text(const std::vector<Mistake>& mistakes) {
    std::string text;
    for (const Mistake& mistake : mistakes) {
        if (!text.empty()) text += "\n";
        if (!mistake.field.empty()) text += mistake.field + ": ";
        text += mistake.message;
    }
    return text;
}

}  // namespace draftscope
