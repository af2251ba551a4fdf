#include "app/gui/models/latency.h"

#include <fmt/format.h>

#include "base/format_count.h"

namespace draftscope {

LatencyModel build_latency(const Snapshot& snapshot, RowId run_id) {
    LatencyModel model;
    if (snapshot.run(run_id) == nullptr) {
        model.empty_text = "No run yet. Latencies appear with the first rounds.";
        return model;
    }
    const Latency measured = latency(snapshot, run_id);
    const auto add = [&](const char* name, const char* help, const Summary& ms) {
        if (ms.n > 0) model.rows.push_back({name, help, ms});
    };
    add("first token", "Time to first token: the prefill of each prompt.", measured.first_token_ms);
    add("inter-token",
        "Inter-token latency of each token: the time of its step, divided by the tokens that its round added "
        "to the text.",
        measured.inter_token_ms);
    add("output", "Time between two outputs of a text: a step, whose tokens arrive together.",
        measured.output_gap_ms);
    model.by_context = speed_by_position(snapshot, run_id, true);
    model.by_position = speed_by_position(snapshot, run_id, false);
    if (model.rows.empty() && model.by_context.empty())
        model.empty_text = "This run has no prompts and no steps yet.";
    return model;
}

std::string describe_bin(const PositionBin& bin) {
    const std::string speed = bin.tokens_per_second > 0
                                  ? fmt::format("{:.1f} tokens per second", bin.tokens_per_second)
                                  : std::string("no counted step");
    return fmt::format("{} tokens: {}, {}, tau {:.2f}", to_text(bin), format_count(bin.rounds, "round"),
                       speed, bin.tau);
}

std::string axis_label(const PositionBin& bin) {
    return bin.from >= 1024 ? fmt::format("{}k", bin.from / 1024) : fmt::format("{}", bin.from);
}

}  // namespace draftscope
