#include "engine/fit/recording_texts.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace draftscope::fit {
namespace {

class TraceTexts final : public TextSource {
  public:
    TraceTexts(Traces traces, bool aux) : traces_(std::move(traces)), aux_(aux) {
        for (std::size_t t = 0; t < traces_.size(); ++t)
            for (const TracePrompt& prompt : traces_[t]->prompts()) places_.push_back({t, &prompt});
    }

    int texts() const override { return static_cast<int>(places_.size()); }
    int generated(int text) const override { return place(text).prompt->generated_tokens; }
    Result<FitText> load(int text) override {
        const TracePrompt& from = *place(text).prompt;
        const Trace& trace = *traces_[place(text).trace];
        FitText result;
        result.tokens = trace.tokens(from);
        result.prompt_tokens = from.prompt_tokens;
        result.hidden = Dense(from.rows(), trace.info().target.hidden);
        DS_TRY(trace.hidden(from.first_row, result.hidden.view()));
        if (!aux_) return result;
        result.aux = Dense(from.rows(), trace.info().aux_width());
        DS_TRY(trace.aux(from.first_row, result.aux.view()));
        return result;
    }

  private:
    struct Place {
        std::size_t trace;
        const TracePrompt* prompt;
    };
    const Place& place(int text) const { return places_[static_cast<std::size_t>(text)]; }

    Traces traces_;
    std::vector<Place> places_;
    bool aux_;
};

std::string listed(std::span<const int> values) {
    return values.empty() ? std::string("none") : fmt::format("{}", fmt::join(values, ","));
}

}  // namespace

Result<Traces> open_traces(std::span<const std::string> folders) {
    Traces traces;
    for (const std::string& folder : folders) {
        DS_ASSIGN(auto trace, Trace::open(folder));
        traces.push_back(std::move(trace));
        const TraceTarget& first = traces.front()->info().target;
        const TraceTarget& target = traces.back()->info().target;
        if (target.name != first.name || target.tokens != first.tokens || target.hidden != first.hidden)
            return bad_input(
                "{}: trace.json: target is {} ({} tokens, hidden size {}), but that of {} is {} ({}, {})",
                folder, target.name, target.tokens, target.hidden, folders.front(), first.name, first.tokens,
                first.hidden);
    }
    if (traces.empty()) return bad_input("no recording given; draftscope record writes one");
    return traces;
}

Result<std::unique_ptr<TextSource>> make_trace_texts(Traces traces, std::span<const int> aux_layers) {
    for (const auto& trace : traces) {
        const std::vector<int>& recorded = trace->info().aux_layers;
        if (aux_layers.empty() || std::ranges::equal(aux_layers, recorded)) continue;
        return bad_input(
            "{}: trace.json: aux_layers are {}, but the drafter reads {}; record again with --aux {}",
            trace->folder(), listed(recorded), listed(aux_layers), listed(aux_layers));
    }
    return std::unique_ptr<TextSource>(std::make_unique<TraceTexts>(std::move(traces), !aux_layers.empty()));
}

}  // namespace draftscope::fit
