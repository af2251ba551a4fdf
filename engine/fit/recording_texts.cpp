#include "engine/fit/recording_texts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace draftscope::fit {
namespace {

class RecordingTexts final : public TextSource {
  public:
    RecordingTexts(Recordings recordings, bool aux) : recordings_(std::move(recordings)), aux_(aux) {
        for (const auto& recording : recordings_)
            for (const RecordedPrompt& prompt : recording->prompts())
                turns_.emplace_back(recording.get(), &prompt);
    }

    int texts() const override { return static_cast<int>(turns_.size()); }
    int generated(int text) const override { return turns_[text].second->generated_tokens; }
    Result<FitText> load(int text) override {
        const auto& [recording, prompt] = turns_[text];
        FitText result;
        result.tokens = recording->tokens(*prompt);
        result.prompt_tokens = prompt->prompt_tokens;
        result.hidden = Dense(prompt->rows(), recording->info().target.hidden);
        DS_TRY(recording->hidden(prompt->first_row, result.hidden.view()));
        if (!aux_) return result;
        result.aux = Dense(prompt->rows(), recording->info().aux_width());
        DS_TRY(recording->aux(prompt->first_row, result.aux.view()));
        return result;
    }

  private:
    Recordings recordings_;
    std::vector<std::pair<const DecodeRecording*, const RecordedPrompt*>> turns_;
    bool aux_;
};

std::string join_values(std::span<const int> values) {
    return values.empty() ? std::string("none") : fmt::format("{}", fmt::join(values, ","));
}

}  // namespace

Result<Recordings> open_recordings(std::span<const std::string> folders) {
    Recordings recordings;
    for (const std::string& folder : folders) {
        DS_ASSIGN(auto recording, DecodeRecording::open(folder));
        recordings.push_back(std::move(recording));
        const RecordedTarget& first = recordings.front()->info().target;
        const RecordedTarget& target = recordings.back()->info().target;
        if (target.name != first.name || target.tokens != first.tokens || target.hidden != first.hidden)
            return bad_input(
                "{}: trace.json: target is {} ({} tokens, hidden size {}), but that of {} is {} ({}, {})",
                folder, target.name, target.tokens, target.hidden, folders.front(), first.name, first.tokens,
                first.hidden);
    }
    if (recordings.empty()) return bad_input("no recording given; draftscope record writes one");
    return recordings;
}

Result<std::unique_ptr<TextSource>> make_recording_texts(Recordings recordings,
                                                         std::span<const int> aux_layers) {
    for (const auto& recording : recordings) {
        const std::vector<int>& recorded = recording->info().aux_layers;
        if (aux_layers.empty() || std::ranges::equal(aux_layers, recorded)) continue;
        return bad_input(
            "{}: trace.json: aux_layers are {}, but the drafter reads {}; record again with --aux {}",
            recording->folder(), join_values(recorded), join_values(aux_layers), join_values(aux_layers));
    }
    return std::unique_ptr<TextSource>(
        std::make_unique<RecordingTexts>(std::move(recordings), !aux_layers.empty()));
}

}  // namespace draftscope::fit
