#include "engine/recording/recording.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/numel.h"
#include "capture/conversations.h"
#include "engine/formats/dequant.h"
#include "engine/formats/model_file.h"
#include "kernels/ops/float16.h"

namespace draftscope {
namespace {

static_assert(std::endian::native == std::endian::little,
              "recordings are little-endian and read without conversion");

template <typename T>
T load(const std::uint8_t* data) {
    T value;
    std::memcpy(&value, data, sizeof(T));
    return value;
}

}  // namespace

Result<std::shared_ptr<const DecodeRecording>> DecodeRecording::open(
    const std::string& folder, const std::function<void(std::vector<RecordedPrompt>&)>& select) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (!fs::is_directory(folder, error))
        return bad_input("{}: is not a folder; a recording is a folder with trace.json and trace.safetensors",
                         folder);
    auto recording = std::make_shared<DecodeRecording>();
    recording->folder_ = folder;
    DS_ASSIGN(recording->info_, read_recording_info((fs::path(folder) / "trace.json").string()));
    DS_ASSIGN(recording->source_, open_safetensors((fs::path(folder) / "trace.safetensors").string()));
    DS_TRY(recording->open_tensors());
    DS_TRY(recording->check_prompts());
    if (select) select(recording->info_.prompts);
    const std::string weights = (fs::path(folder) / "weights.safetensors").string();
    if (fs::exists(weights, error)) recording->weights_path_ = weights;
    return std::shared_ptr<const DecodeRecording>(std::move(recording));
}

Result<DecodeRecording::Tensor> DecodeRecording::tensor(const char* name, const char* type,
                                                        int columns) const {
    const TensorInfo* found = source_->find(name);
    if (found == nullptr) return bad_input("{}: tensor '{}' is missing", file(), name);
    if (found->type != type)
        return bad_input("{}: tensor '{}' has type {}, expected {}", file(), name, found->type, type);
    std::vector<std::int64_t> expected = {info_.rows};
    if (columns > 0) expected.push_back(columns);
    if (found->shape != expected)
        return bad_input("{}: tensor '{}' has shape [{}], expected [{}] according to trace.json", file(),
                         name, fmt::join(found->shape, ", "), fmt::join(expected, ", "));
    const auto bytes = source_->stored(*found);
    return Tensor{name, bytes.data(), bytes.size() / info_.rows};
}

Status DecodeRecording::open_tensors() {
    DS_ASSIGN(tokens_, tensor("tokens", "I32", 0));
    DS_ASSIGN(hidden_, tensor("hidden", "BF16", info_.target.hidden));
    DS_ASSIGN(topk_ids_, tensor("topk_ids", "I32", recording_topk));
    DS_ASSIGN(topk_logprobs_, tensor("topk_logprobs", "F16", recording_topk));
    if (!info_.aux_layers.empty()) {
        DS_ASSIGN(aux_, tensor("aux", "BF16", info_.aux_width()));
    }
    DS_TRY(check_ids(tokens_, 1));
    return check_ids(topk_ids_, recording_topk);
}

Status DecodeRecording::check_ids(const Tensor& tensor, int columns) const {
    const auto count = info_.rows * columns;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto id = load<std::int32_t>(tensor.data + i * 4);
        if (id >= 0 && id < info_.target.vocab) continue;
        return bad_input("{}: {}[{}] is {}, outside the vocabulary of {}", file(), tensor.name, i / columns,
                         id, info_.target.vocab);
    }
    return {};
}

Status DecodeRecording::check_prompts() const {
    std::vector<const RecordedPrompt*> order;
    for (const RecordedPrompt& prompt : info_.prompts) order.push_back(&prompt);
    std::sort(order.begin(), order.end(),
              [](const RecordedPrompt* a, const RecordedPrompt* b) { return a->first_row < b->first_row; });
    std::int64_t next = 0;
    for (const RecordedPrompt* prompt : order) {
        if (prompt->first_row != next)
            return bad_input(
                "{}/trace.json: prompt {} begins at row {}, expected {}: prompts must cover the "
                "rows without gap or overlap",
                folder_, prompt->id, prompt->first_row, next);
        if (prompt->rows() > info_.target.context)
            return bad_input("{}/trace.json: prompt {} has {} rows, more than the context of {}", folder_,
                             prompt->id, prompt->rows(), info_.target.context);
        next += prompt->rows();
    }
    if (next != info_.rows)
        return bad_input("{}/trace.json: rows is {}, but its prompts have {}", folder_, info_.rows, next);
    return {};
}

std::vector<TokenId> DecodeRecording::tokens(const RecordedPrompt& prompt) const {
    std::vector<TokenId> out(prompt.rows());
    std::memcpy(out.data(), tokens_.data + prompt.first_row * 4, out.size() * sizeof(TokenId));
    return out;
}

Status DecodeRecording::features(const Tensor& tensor, std::int64_t first, Rows<float> out) const {
    if (tensor.data == nullptr) return failed("{}: the recording has no aux features", folder_);
    for (int r = 0; r < out.rows; ++r) {
        const std::uint8_t* from = tensor.data + numel(first + r, tensor.row_bytes);
        float* to = out.row_data(r);
        bool finite = true;
        for (int j = 0; j < out.cols; ++j) {
            const auto bits = load<std::uint16_t>(from + 2 * j);
            finite = finite && (bits & 0x7f80u) != 0x7f80u;
            to[j] = kernels::from_bf16(bits);
        }
        if (!finite)
            return bad_input("{}: {}[{}] holds a value that is not finite", file(), tensor.name, first + r);
    }
    return {};
}

std::vector<TokenId> DecodeRecording::best(std::int64_t row, int k) const {
    std::vector<TokenId> out(std::min(k, recording_topk));
    std::memcpy(out.data(), topk_ids_.data + numel(row, topk_ids_.row_bytes), out.size() * sizeof(TokenId));
    return out;
}

std::vector<float> DecodeRecording::best_logprobs(std::int64_t row, int k) const {
    std::vector<float> out(std::min(k, recording_topk));
    const std::uint8_t* from = topk_logprobs_.data + numel(row, topk_logprobs_.row_bytes);
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = kernels::f16_to_float(load<std::uint16_t>(from + 2 * i));
    return out;
}

std::vector<std::size_t> conversation_of_prompts(std::span<const RecordedPrompt> prompts) {
    std::vector<TurnName> names;
    for (const RecordedPrompt& prompt : prompts) names.push_back({prompt.suite, prompt.id, prompt.turn});
    return group_conversations(names);
}

}  // namespace draftscope
