#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/spans.h"
#include "engine/formats/weight_source.h"
#include "engine/recording/recording_info.h"

namespace draftscope {

/// A recorded target decode, memory-mapped from a folder; thread-safe. The folder has trace.json,
/// trace.safetensors and optionally weights.safetensors (docs/FORMATS.md). Row i belongs to token i of the
/// recording: its hidden state and the target's best tokens to follow it.
class DecodeRecording {
  public:
    /// Checks shapes, types and ids. Errors are bad_input and name file and field. `select` may remove
    /// prompts once they are checked.
    static Result<std::shared_ptr<const DecodeRecording>> open(
        const std::string& folder, const std::function<void(std::vector<RecordedPrompt>&)>& select = {});

    const std::string& folder() const { return folder_; }
    const RecordingInfo& info() const { return info_; }
    std::span<const RecordedPrompt> prompts() const { return info_.prompts; }

    /// Prompt and generated tokens of one turn.
    std::vector<TokenId> tokens(const RecordedPrompt& prompt) const;
    /// Hidden states after the final norm, [count, d], from row `first` on. A value that is not finite is
    /// bad_input.
    Status hidden(std::int64_t first, Rows<float> out) const { return features(hidden_, first, out); }
    /// [count, aux_width()]. Only for recordings with aux layers.
    Status aux(std::int64_t first, Rows<float> out) const { return features(aux_, first, out); }
    /// The target's k best tokens after row `row`, best first; k <= recording_topk.
    std::vector<TokenId> best(std::int64_t row, int k) const;
    /// Their log-probabilities (softmax of the raw logits).
    std::vector<float> best_logprobs(std::int64_t row, int k) const;

    /// File with `lm_head.weight` and `model.embed_tokens.weight`, both [V, d]. "" = the recording has none.
    const std::string& weights_path() const { return weights_path_; }

  private:
    struct Tensor {
        const char* name = "";
        const std::uint8_t* data = nullptr;
        std::size_t row_bytes = 0;
    };
    Status open_tensors();
    Result<Tensor> tensor(const char* name, const char* type, int columns) const;
    Status check_ids(const Tensor& tensor, int columns) const;
    Status check_prompts() const;
    Status features(const Tensor& tensor, std::int64_t first, Rows<float> out) const;
    std::string file() const { return source_->path(); }

    std::string folder_, weights_path_;
    RecordingInfo info_;
    std::unique_ptr<WeightSource> source_;
    Tensor tokens_, hidden_, aux_, topk_ids_, topk_logprobs_;
};

/// Returns the conversation of each prompt, the unit that intervals resample.
std::vector<std::size_t> conversation_of_prompts(std::span<const RecordedPrompt> prompts);

}  // namespace draftscope
