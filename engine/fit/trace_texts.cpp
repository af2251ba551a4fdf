#include "engine/fit/trace_texts.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace draftscope::fit {
namespace {

class TraceTexts final : public TextSource {
  public:
    TraceTexts(std::shared_ptr<const Trace> trace, bool aux) : trace_(std::move(trace)), aux_(aux) {}

    int texts() const override { return static_cast<int>(trace_->prompts().size()); }
    int generated(int text) const override { return prompt(text).generated_tokens; }
    Result<FitText> load(int text) override {
        const TracePrompt& from = prompt(text);
        FitText result;
        result.tokens = trace_->tokens(from);
        result.prompt_tokens = from.prompt_tokens;
        result.hidden = Dense(from.rows(), trace_->info().target.hidden);
        DS_TRY(trace_->hidden(from.first_row, result.hidden.view()));
        if (!aux_) return result;
        result.aux = Dense(from.rows(), trace_->info().aux_width());
        DS_TRY(trace_->aux(from.first_row, result.aux.view()));
        return result;
    }

  private:
    const TracePrompt& prompt(int text) const { return trace_->prompts()[static_cast<std::size_t>(text)]; }

    std::shared_ptr<const Trace> trace_;
    bool aux_;
};

std::string listed(std::span<const int> values) {
    return values.empty() ? std::string("none") : fmt::format("{}", fmt::join(values, ","));
}

}  // namespace

Result<std::unique_ptr<TextSource>> make_trace_texts(std::shared_ptr<const Trace> trace,
                                                     std::span<const int> aux_layers) {
    const std::vector<int>& recorded = trace->info().aux_layers;
    if (!aux_layers.empty() && !std::ranges::equal(aux_layers, recorded)) {
        return bad_input(
            "{}: trace.json: aux_layers are {}, the drafter reads {}; record the trace again with --aux {}",
            trace->folder(), listed(recorded), listed(aux_layers), listed(aux_layers));
    }
    return std::unique_ptr<TextSource>(std::make_unique<TraceTexts>(std::move(trace), !aux_layers.empty()));
}

}  // namespace draftscope::fit
