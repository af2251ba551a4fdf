#include "app/gui/models/activity.h"

#include <fmt/format.h>

#include "app/gui/models/timeline.h"
#include "base/phase.h"
#include "base/phase_names.h"

namespace draftscope {
namespace {

bool is_draft_phase(int id) {
    return id >= static_cast<int>(Phase::backbone) && id <= static_cast<int>(Phase::remap);
}

std::string phase_text(int id, int level) {
    const std::string name(id > 0 && id < static_cast<int>(phase_rows.size())
                               ? phase_rows[id].name
                               : std::string_view("the start"));
    return is_draft_phase(id) ? fmt::format("{}, {}", name, level_name(level)) : name;
}

std::string next_text(const HoldPoint& point) {
    if (point.next_phase_id == 0) return "";
    const bool same_level = point.kind == HoldPoint::Kind::after_phase && is_draft_phase(point.phase_id) &&
                            point.level == point.next_level && is_draft_phase(point.next_phase_id);
    if (same_level) return fmt::format("; next: {}", phase_rows[point.next_phase_id].name);
    return "; next: " + phase_text(point.next_phase_id, point.next_level);
}

/// A step of a batch has several rounds: the text names the one that is shown.
std::string step_text(const HoldPoint& point, const Snapshot& snapshot) {
    const bool batch = !snapshot.runs.empty() && snapshot.runs.back().batch > 1;
    const PromptRow* prompt = snapshot.prompt(point.prompt_id);
    return fmt::format("after {} {}", batch ? "step" : "round", point.round) +
           (batch && prompt != nullptr ? fmt::format(", prompt {}", prompt->ordinal + 1) : "");
}

std::string place_text(const HoldPoint& point, const Snapshot& snapshot) {
    switch (point.kind) {
        case HoldPoint::Kind::before_prefill:
            return "before prefill";
        case HoldPoint::Kind::before_round:
            return "before the next round";
        case HoldPoint::Kind::after_phase:
            return fmt::format("after {} ({}){}", phase_text(point.phase_id, point.level),
                               duration_text(point.phase_ns), next_text(point));
        case HoldPoint::Kind::after_level:
            return fmt::format("after {}{}", level_name(point.level), next_text(point));
        case HoldPoint::Kind::after_round:
            return step_text(point, snapshot);
    }
    return "";
}

}  // namespace

std::string hold_text(const HoldPoint& point, std::string_view reason, const Snapshot& snapshot) {
    const std::string text = "paused " + place_text(point, snapshot);
    return reason.empty() || reason == "paused" ? text : fmt::format("{}: {}", text, reason);
}

std::string prefill_text(const Snapshot& snapshot) {
    if (snapshot.runs.empty() || snapshot.in_flight != nullptr) return "";
    const RunRow& run = snapshot.runs.back();
    const bool decodes = !snapshot.rounds.empty() && snapshot.rounds.back().row.run_id == run.id;
    if (run.ended != RunEnd::live || decodes) return "";
    for (auto prompt = snapshot.prompts.rbegin(); prompt != snapshot.prompts.rend(); ++prompt)
        if ((*prompt)->run_id == run.id)
            return fmt::format("prefill (prompt tokens: {})", (*prompt)->prompt_tokens);
    return "";
}

}  // namespace draftscope
