#include "app/jobs/controller/choices.h"

#include <fmt/format.h>

#include "app/jobs/machine/capabilities.h"
#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/assets.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/resolve/vocabulary.h"
#include "base/log.h"
#include "engine/draft/registry.h"

namespace draftscope {
namespace {

std::string capability_line(const Machine& machine) {
    std::string line = fmt::format("CPU {} · {} cores", machine.isa, machine.cores);
    for (const Capability& capability : machine.capabilities)  // the details have what is missing
        if (capability.available) line += fmt::format(" · {}: {}", capability.name, capability.brief);
    return line;
}

/// Returns one line per capability, with remedies for the missing ones.
std::string capability_details(const Machine& machine) {
    std::string lines;
    for (const Capability& capability : machine.capabilities) {
        lines += fmt::format("{}{}: {}", lines.empty() ? "" : "\n", capability.name, capability.state);
        if (!capability.remedy.empty()) lines += fmt::format("\n    {}", capability.remedy);
    }
    return lines;
}

std::vector<DrafterChoice> drafter_choices() {
    std::vector<DrafterChoice> choices;
    for (const DrafterInfo& info : drafter_registry()) {
        DrafterChoice choice;
        choice.spec = std::string(info.id);
        if (!info.usual.empty()) choice.spec.append(":").append(info.usual);
        choice.name = std::string(info.name);
        const DrafterInfo traits = drafter_traits(choice.spec);
        choice.traits = {traits.drafts, traits.uses_head, info.needs_weights};
        choice.usable = !info.needs_weights || !find_asset("drafters/" + std::string(traits.id)).empty();
        if (!choice.usable)
            choice.why_not = "no checkpoint for the demo model: give " + choice.spec + ":FOLDER";
        choices.push_back(std::move(choice));
    }
    return choices;
}

std::vector<RuleChoice> rule_choices() {
    std::vector<RuleChoice> choices;
    for (const RuleInfo* rule : rule_registry())
        if (!rule->is_simulated())
            choices.push_back({std::string(rule->id), std::string(rule->summary),
                               rule->losslessness == Losslessness::lossy, rule->own_threshold});
    return choices;
}

}  // namespace

WindowChoices list_window_choices() {
    const Machine machine = describe_capabilities();
    WindowChoices found;
    found.heads = head_choices();
    found.drafters = drafter_choices();
    found.rules = rule_choices();
    found.profiles = list_assets("profiles", ".json");
    found.default_model = find_demo_model();
    found.models = list_cached_models();
    found.capability_line = capability_line(machine);
    found.capability_details = capability_details(machine);
    return found;
}

Result<WatchConfig> watch_config(const CmdWatchServer& command, RowId vocabulary) {
    WatchConfig config;
    config.url = command.url;
    config.max_new = command.prompts.max_new;
    config.temperature = command.prompts.temperature;
    config.seed = command.prompts.seed;
    DS_TRY(load_vocabulary(command.prompts.model, "", vocabulary, config.rounds));
    DS_ASSIGN(PromptSet prompts, read_prompts(command.prompts));
    say_notes(prompts.notes);
    config.conversations = std::move(prompts.conversations);
    return config;
}

}  // namespace draftscope
