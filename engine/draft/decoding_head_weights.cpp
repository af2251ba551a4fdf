#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "base/numel.h"
#include "engine/draft/decoding_heads.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/synthetic_drafter.h"
#include "engine/weights/weight_packing.h"
#include "kernels/matmul.h"

namespace draftscope {
namespace {

constexpr std::array<std::string_view, 5> medusa_files = {"model.safetensors", "medusa_lm_head.safetensors",
                                                          "medusa_lm_head.pt", "pytorch_model.bin",
                                                          "medusa_head.safetensors"};
constexpr std::array<std::string_view, 4> hydra_files = {"model.safetensors", "hydra_lm_head.safetensors",
                                                         "hydra_lm_head.pt", "pytorch_model.bin"};
// Frameworks that store the heads inside a model prefix its attribute's name.
constexpr std::array<std::string_view, 3> prefixes = {"", "medusa_head.", "medusa_heads."};
/// Number of heads of a random drafter: Medusa's trees use four.
constexpr int synthetic_heads = 4;

/// Reads one checkpoint and records which tensors were used.
class Reader {
  public:
    Reader(DecodingHeadKind kind, const WeightSource& source, const Target& target, kernels::Exec& exec)
        : kind_(kind), source_(source), target_(target), exec_(exec), d_(target.config().hidden) {}

    Result<DecodingHeadWeights> read();

  private:
    bool has(const std::string& name) const { return source_.find(name) != nullptr; }
    std::string block_name(int head, int block) const;
    std::string lm_head_name(int head) const;
    Status find_layout();
    Result<ResidualBlock> read_block(int head, int block);
    Result<kernels::Matrix> matrix(const std::string& name, int rows, int cols, std::string_view reason);
    Result<std::vector<float>> vector(const std::string& name, int size);
    Status read_lm_head(int head, DecodingHeadWeights& out);
    Status check_all_used() const;
    std::string id() const { return kind_ == DecodingHeadKind::medusa ? "Medusa" : "Hydra"; }

    DecodingHeadKind kind_;
    const WeightSource& source_;
    const Target& target_;
    kernels::Exec& exec_;
    int d_;
    bool published_hydra_ = false;
    std::string prefix_;
    int blocks_ = 0;
    std::set<std::string, std::less<>> used_;
};

std::string Reader::block_name(int head, int block) const {
    if (published_hydra_) return fmt::format("hydra_mlp.{}.{}.", head, block);
    return fmt::format("{}{}.{}.", prefix_, head, block);
}

/// Medusa stores the LM head as the member after the blocks.
std::string Reader::lm_head_name(int head) const {
    if (published_hydra_) return fmt::format("hydra_lm_head.{}.", head);
    return fmt::format("{}{}.{}.", prefix_, head, blocks_);
}

Status Reader::find_layout() {
    for (const std::string& name : source_.names()) {
        const bool prefix_layer = name.starts_with("prefix_embeding_layer.");
        if (!prefix_layer && !name.starts_with("hydra_mlp.0.1.linear")) continue;
        if (!prefix_layer && has("hydra_mlp.0.0.linear.weight")) continue;
        return bad_input(
            "{}: tensor '{}' belongs to Hydra's prefix attention (hydra_head_arch \"prefix-mlp\", "
            "Hydra++), which this version does not support; use heads of architecture \"mlp\"",
            source_.path(), name);
    }
    published_hydra_ = kind_ == DecodingHeadKind::hydra && has("hydra_mlp.0.0.linear.weight");
    for (const std::string_view prefix : prefixes) {
        if (has(std::string(prefix) + "0.0.linear.weight")) prefix_ = prefix;
    }
    while (has(block_name(0, blocks_) + "linear.weight")) ++blocks_;
    if (blocks_ > 0) return {};
    return bad_input("{}: tensor '0.0.linear.weight'{} is missing: not a {} checkpoint", source_.path(),
                     kind_ == DecodingHeadKind::hydra ? " or 'hydra_mlp.0.0.linear.weight'" : "", id());
}

Result<kernels::Matrix> Reader::matrix(const std::string& name, int rows, int cols, std::string_view reason) {
    used_.insert(name);
    const StackedTensor part{name, rows};
    return pack_stacked(exec_, target_.precision(), source_, {&part, 1}, cols, reason);
}

Result<std::vector<float>> Reader::vector(const std::string& name, int size) {
    used_.insert(name);
    return read_vector(source_, name, size);
}

Result<ResidualBlock> Reader::read_block(int head, int block) {
    const std::string name = block_name(head, block);
    const TensorInfo* info = source_.find(name + "linear.weight");
    // The first block of Hydra's grounded heads reads the drafted tokens' embeddings; ungrounded heads do
    // not.
    const bool uses_path = kind_ == DecodingHeadKind::hydra && block == 0;
    const int inputs = uses_path ? (head + 2) * d_ : d_;
    if (uses_path && info != nullptr && info->cols() == d_) {
        return bad_input(
            "{}: tensor '{}linear.weight' has {} columns: ungrounded heads "
            "(grounded_heads false) are Medusa's; use --drafter medusa",
            source_.path(), name, info->cols());
    }
    ResidualBlock out;
    DS_ASSIGN(out.weight, matrix(name + "linear.weight", d_, inputs, "from the target's hidden size"));
    DS_ASSIGN(out.bias, vector(name + "linear.bias", d_));
    if (!has(name + "res_connection.weight")) return out;
    DS_ASSIGN(out.shortcut, matrix(name + "res_connection.weight", d_, inputs, "as in the linear layer"));
    DS_ASSIGN(out.shortcut_bias, vector(name + "res_connection.bias", d_));
    return out;
}

Status Reader::read_lm_head(int head, DecodingHeadWeights& out) {
    const std::string name = lm_head_name(head);
    const int vocab = target_.lm_head().n();
    if (!has(name + "weight")) {
        if (out.lm_heads.empty()) return {};
        return bad_input("{}: tensor '{}weight' is missing, but the previous heads have LM heads",
                         source_.path(), name);
    }
    if (static_cast<int>(out.lm_heads.size()) != head)
        return bad_input("{}: tensor '{}weight' is present, but the previous heads have no LM heads",
                         source_.path(), name);
    DS_ASSIGN(auto lm_head,
              matrix(name + "weight", vocab, d_, "from the target's vocabulary and hidden size"));
    out.lm_heads.push_back(std::move(lm_head));
    std::vector<float> bias;
    if (has(name + "bias")) {
        DS_ASSIGN(bias, vector(name + "bias", vocab));
    }
    out.lm_biases.push_back(std::move(bias));
    return {};
}

Status Reader::check_all_used() const {
    for (const std::string& name : source_.names()) {
        if (used_.count(name) != 0) continue;
        return bad_input("{}: tensor '{}' is not supported in {} checkpoints by this version", source_.path(),
                         name, id());
    }
    return {};
}

Result<DecodingHeadWeights> Reader::read() {
    DS_TRY(find_layout());
    DecodingHeadWeights out;
    for (int head = 0; has(block_name(head, 0) + "linear.weight"); ++head) {
        std::vector<ResidualBlock> blocks;
        for (int block = 0; block < blocks_; ++block) {
            DS_ASSIGN(auto one, read_block(head, block));
            blocks.push_back(std::move(one));
        }
        out.heads.push_back(std::move(blocks));
        DS_TRY(read_lm_head(head, out));
    }
    DS_TRY(check_all_used());
    return out;
}

/// A config may name fewer heads than the file has (published configs say 2 where files hold 5). Only
/// impossible settings are errors.
Status check_config(const DrafterFiles& files, const Target& target, DecodingHeadKind kind) {
    if (!files.config) return {};
    DS_ASSIGN(const auto hidden, files.config->count("hidden_size", std::int64_t{1} << 24));
    if (hidden && *hidden != target.config().hidden) {
        return bad_input(
            "{}: hidden_size is {}, but the target has {}: this drafter was made for another target",
            files.config->path(), *hidden, target.config().hidden);
    }
    if (kind != DecodingHeadKind::hydra) return {};
    DS_ASSIGN(const auto head_arch, files.config->text("hydra_head_arch"));
    if (head_arch.value_or("mlp") != "mlp")
        return files.config->field_error("hydra_head_arch", "\"mlp\", the only supported architecture");
    const nlohmann::json* offset = files.config->find("hidden_state_offset");
    if (offset != nullptr && *offset != 0)
        return files.config->field_error("hidden_state_offset", "0: the hidden that the LM head reads");
    return {};
}

}  // namespace

std::size_t DecodingHeadWeights::bytes(int head) const {
    std::size_t total = 0;
    for (const ResidualBlock& block : heads[head]) total += block.bytes();
    return total;
}

std::vector<LevelLmHead> level_lm_heads(const DecodingHeadWeights& weights) {
    std::vector<LevelLmHead> out;
    for (std::size_t i = 0; i < weights.lm_heads.size(); ++i) {
        const std::vector<float>& bias = weights.lm_biases[i];
        out.push_back({&weights.lm_heads[i], bias.empty() ? nullptr : bias.data()});
    }
    return out;
}

Result<DecodingHeadWeights> load_decoding_heads(DecodingHeadKind kind, const std::string& drafter_source,
                                                const Target& target, kernels::Exec& exec) {
    const bool hydra = kind == DecodingHeadKind::hydra;
    DrafterFiles files;
    if (is_synthetic_drafter(drafter_source)) {
        DS_ASSIGN(files.weights,
                  make_synthetic_decoding_heads(drafter_source, target, synthetic_heads, hydra));
    } else {
        const std::span<const std::string_view> names = hydra
                                                            ? std::span<const std::string_view>(hydra_files)
                                                            : std::span<const std::string_view>(medusa_files);
        DS_ASSIGN(files, open_drafter_files(drafter_source, names));
        DS_TRY(check_config(files, target, kind));
    }
    DS_TRY(check_drafter_memory(*files.weights, target.precision()));
    return Reader(kind, *files.weights, target, exec).read();
}

}  // namespace draftscope
