#include "app/cli/speedup_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/estimates.h"
#include "base/format_count.h"
#include "profiler/stats/speedup.h"

namespace draftscope::cli {

std::string speedup_text(const Snapshot& snapshot, RowId run_id) {
    const auto speed = compute_speedup(snapshot, run_id);
    if (!speed) {
        const auto earlier = legacy_baseline(snapshot, run_id);
        if (!earlier) return {};
        return fmt::format(
            "autoregressive decoding reached {:.1f} tok/s over the run's first prompts (one value, stored by "
            "an earlier version): no speed-up over the same prompts can be derived\n",
            *earlier);
    }
    std::string ratio = fmt::format("{:.2f}x", speed->ratio.value);
    if (speed->ratio.interval)
        ratio += fmt::format(" [{:.2f}, {:.2f}]", speed->ratio.interval->low, speed->ratio.interval->high);
    return fmt::format(
        "speed-up {} against autoregressive decoding: {:.1f} and {:.1f} tok/s over the same {} of {}{}\n",
        ratio, speed->tokens_per_second, speed->plain_tokens_per_second,
        format_count(static_cast<std::int64_t>(speed->prompts), "prompt"),
        format_count(static_cast<std::int64_t>(speed->conversations), "conversation"),
        speed->conversations < speed->conversations_of_run
            ? fmt::format(" (the run has {})", speed->conversations_of_run)
            : std::string());
}

nlohmann::json speedup_json(const Snapshot& snapshot, RowId run_id) {
    const auto speed = compute_speedup(snapshot, run_id);
    nlohmann::json out = write_fields(
        join(field("runs", &Speedup::plain_runs), DS_FIELDS(Speedup, prompts, conversations),
             field("tokens_per_second", &Speedup::plain_tokens_per_second),
             field("run_tokens_per_second", &Speedup::tokens_per_second), field("speedup", &Speedup::ratio),
             as(estimate_interval_json, field("interval", &Speedup::ratio))),
        speed.value_or(Speedup()));
    if (!speed)
        for (auto& value : out)
            if (!value.is_array()) value = nullptr;
    return out;
}

}  // namespace draftscope::cli
