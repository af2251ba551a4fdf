#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <tuple>

#include "base/numel.h"
#include "engine/draft/decoding_heads.h"
#include "engine/draft/drafter_files.h"
#include "engine/draft/synthetic_drafter.h"
#include "engine/weights/memory_check.h"
#include "engine/weights/weight_packing.h"
#include "kernels/host_rows.h"

namespace draftscope {
namespace {

constexpr std::array<std::string_view, 5> medusa_files = {"model.safetensors", "medusa_lm_head.safetensors",
                                                          "medusa_lm_head.pt", "pytorch_model.bin",
                                                          "medusa_head.safetensors"};
constexpr std::array<std::string_view, 4> hydra_files = {"model.safetensors", "hydra_lm_head.safetensors",
                                                         "hydra_lm_head.pt", "pytorch_model.bin"};
/// A layout's names behind a prefix. {0} is the head, {1} the block; of `lm_head` {1} is the number of
/// blocks.
struct HeadLayout {
    std::string_view block;  ///< of the linear layer, without "weight" and "bias"
    std::string_view lm_head;
    bool hydra = false;
};
constexpr std::array<HeadLayout, 4> layouts = {{
    {"hydra_mlp.{0}.{1}.linear.", "hydra_lm_head.{0}.", true},
    {"{0}.medusa_layers.{1}.linear.", "{0}.lm_head."},  // TensorRT-LLM
    {"blocks.{0}.layers.{1}.", "lm_heads.{0}."},        // vLLM
    {"{0}.{1}.linear.", "{0}.{1}."},                    // Medusa's own
}};
/// Number of heads of a random drafter: Medusa's trees use four.
constexpr int synthetic_heads = 4;

/// Reads one checkpoint and records which tensors were used.
class Reader {
  public:
    Reader(DecodingHeadKind kind, const WeightSource& source, const Target& target, kernels::Backend& backend)
        : kind_(kind), source_(source), target_(target), backend_(backend), d_(target.config().hidden) {}

    Status read(DecodingHeadWeights& out);

  private:
    bool has(const std::string& name) const { return source_.find(name) != nullptr; }
    std::string block_name(int head, int block) const { return prefix_ + name(layout_->block, head, block); }
    /// Medusa stores the LM head as the member after the blocks.
    std::string lm_head_name(int head) const { return prefix_ + name(layout_->lm_head, head, blocks_); }
    static std::string name(std::string_view pattern, int head, int block) {
        return fmt::format(fmt::runtime(pattern), head, block);
    }
    std::string map_name() const { return has("token_map") ? "token_map" : prefix_ + "token_map"; }
    Status check_prefix_attention() const;
    Status find_layout();
    Result<ResidualBlock> read_block(int head, int block);
    Result<kernels::Matrix> matrix(const std::string& name, int rows, int cols, std::string_view reason);
    Result<std::vector<float>> vector(const std::string& name, int size);
    Status read_lm_head(int head, DecodingHeadWeights& out);
    Status read_vocab(DecodingHeadWeights& out);
    std::string id() const { return kind_ == DecodingHeadKind::medusa ? "Medusa" : "Hydra"; }

    DecodingHeadKind kind_;
    const WeightSource& source_;
    const Target& target_;
    kernels::Backend& backend_;
    int d_;
    const HeadLayout* layout_ = &layouts.back();
    std::string prefix_;  ///< of the model's attribute that holds the heads
    int blocks_ = 0;
    std::set<std::string, std::less<>> used_;
};

Status Reader::check_prefix_attention() const {
    for (const std::string& name : source_.names()) {
        const bool prefix_layer = name.find("prefix_embeding_layer.") != std::string::npos;
        const std::size_t second = name.find("hydra_mlp.0.1.linear");
        if (!prefix_layer && second == std::string::npos) continue;
        if (!prefix_layer && has(name.substr(0, second) + "hydra_mlp.0.0.linear.weight")) continue;
        return bad_input(
            "{}: tensor '{}' belongs to Hydra's prefix attention (hydra_head_arch \"prefix-mlp\", "
            "Hydra++), which this version does not support; use heads of architecture \"mlp\"",
            source_.path(), name);
    }
    return {};
}

/// Finds the layout and the prefix by the first block of the first head.
Status Reader::find_layout() {
    DS_TRY(check_prefix_attention());
    for (const HeadLayout& layout : layouts) {
        if (blocks_ > 0 || (layout.hydra && kind_ == DecodingHeadKind::medusa)) continue;
        const std::string first = name(layout.block, 0, 0) + "weight";
        for (const std::string& tensor : source_.names()) {
            const std::size_t at = tensor.size() - std::min(first.size(), tensor.size());
            if (blocks_ > 0 || tensor.substr(at) != first || (at > 0 && tensor[at - 1] != '.')) continue;
            layout_ = &layout;
            prefix_ = tensor.substr(0, at);
            while (has(block_name(0, blocks_) + "weight")) ++blocks_;
        }
    }
    if (blocks_ > 0) return {};
    return bad_input("{}: tensor '0.0.linear.weight'{} is missing: not a {} checkpoint", source_.path(),
                     kind_ == DecodingHeadKind::hydra ? " or 'hydra_mlp.0.0.linear.weight'"
                                                      : " or 'blocks.0.layers.0.weight'",
                     id());
}

Result<kernels::Matrix> Reader::matrix(const std::string& name, int rows, int cols, std::string_view reason) {
    used_.insert(name);
    const StackedTensor part{name, rows};
    return pack_stacked(backend_, target_.lm_head().precision(), source_, {&part, 1}, cols, reason);
}

Result<std::vector<float>> Reader::vector(const std::string& name, int size) {
    used_.insert(name);
    return read_vector(source_, name, size);
}

Result<ResidualBlock> Reader::read_block(int head, int block) {
    const std::string name = block_name(head, block);
    const TensorInfo* info = source_.find(name + "weight");
    // The first block of Hydra's grounded heads reads the drafted tokens' embeddings; ungrounded heads do
    // not.
    const bool uses_path = kind_ == DecodingHeadKind::hydra && block == 0;
    const int inputs = uses_path ? (head + 2) * d_ : d_;
    if (uses_path && info != nullptr && info->cols() == d_) {
        return bad_input(
            "{}: tensor '{}weight' has {} columns: ungrounded heads "
            "(grounded_heads false) are Medusa's; use --drafter medusa",
            source_.path(), name, info->cols());
    }
    ResidualBlock out;
    DS_ASSIGN(out.weight, matrix(name + "weight", d_, inputs, "from the target's hidden size"));
    out.bias.assign(d_, 0.0f);
    if (has(name + "bias")) {
        DS_ASSIGN(out.bias, vector(name + "bias", d_));
    }
    const std::string shortcut = name.substr(0, name.rfind("linear.")) + "res_connection.";
    if (!has(shortcut + "weight")) return out;
    DS_ASSIGN(out.shortcut, matrix(shortcut + "weight", d_, inputs, "as in the linear layer"));
    DS_ASSIGN(out.shortcut_bias, vector(shortcut + "bias", d_));
    return out;
}

/// Reads the LM head of a head, or the only one, `lm_head`.
Status Reader::read_lm_head(int head, DecodingHeadWeights& out) {
    std::string name = lm_head_name(head);
    if (head == 0 && !has(name + "weight") && layout_->lm_head.starts_with("lm_heads"))
        name = prefix_ + "lm_head.";
    const TensorInfo* info = source_.find(name + "weight");
    if (info == nullptr) {
        if (out.lm_heads.size() <= 1 && layout_->lm_head.starts_with("lm_heads")) return {};
        if (out.lm_heads.empty()) return {};
        return bad_input("{}: tensor '{}weight' is missing, but the previous heads have LM heads",
                         source_.path(), name);
    }
    if (static_cast<int>(out.lm_heads.size()) != head)
        return bad_input("{}: tensor '{}weight' is present, but the previous heads have no LM heads",
                         source_.path(), name);
    const int vocab = target_.lm_head().n();
    const bool trimmed = has(map_name());
    const bool near = std::abs(info->rows() - vocab) <= max_vocab_difference;
    const int rows = trimmed || near ? static_cast<int>(std::min(info->rows(), max_extent)) : vocab;
    DS_ASSIGN(auto lm_head,
              matrix(name + "weight", rows, d_, "from the target's vocabulary and hidden size"));
    out.lm_heads.push_back(std::move(lm_head));
    std::vector<float> bias;
    if (has(name + "bias")) {
        DS_ASSIGN(bias, vector(name + "bias", rows));
    }
    out.lm_biases.push_back(std::move(bias));
    return {};
}

/// Reads token_map and orders the LM heads' rows by token. Without LM heads, the target's rows are taken.
Status Reader::read_vocab(DecodingHeadWeights& out) {
    const int vocab = target_.config().vocab;
    bool trimmed = has(map_name());
    if (trimmed) used_.insert(map_name());
    if (trimmed && !out.trims && !out.lm_heads.empty() && out.lm_heads.front().n() >= vocab) {
        add_note(out.notes, "{}: {} is not used, because truncated_vocab_size does not trim the vocabulary",
                 source_.path(), map_name());
        trimmed = false;
    }
    if (!trimmed && (out.lm_heads.empty() || out.lm_heads.front().n() == target_.lm_head().n())) return {};
    HeadRowMaps maps{map_name(), "", false, 0, "the LM head"};
    std::optional<int> rows;
    if (!out.lm_heads.empty()) rows = out.lm_heads.front().n();
    for (const kernels::Matrix& one : out.lm_heads)
        if (one.n() != *rows)
            return bad_input("{}: LM heads of {} and {} rows", source_.path(), *rows, one.n());
    // A head over the whole vocabulary gives the map's rows, as in vLLM.
    if (trimmed) {
        DS_ASSIGN(const auto map, source_.read_integers(map_name()));
        if (rows && *rows > static_cast<int>(map.size())) rows.reset();
    }
    const bool by_token = trimmed && !rows;
    DS_ASSIGN(out.vocab, read_head_rows(source_, maps, rows, vocab, out.notes));
    if (by_token) out.vocab.rows = out.vocab.ids;
    if (out.vocab.ids.empty() && out.lm_heads.empty()) return {};
    if (out.lm_heads.empty()) {
        add_note(out.notes, "{}: has no LM heads; the target's rows of the {} tokens of {} draft",
                 source_.path(), out.vocab.ids.size(), map_name());
        out.lm_heads.push_back(target_.lm_head().gather_rows(backend_.pool(), out.vocab.ids));
        out.lm_biases.emplace_back();
        return {};
    }
    for (std::size_t i = 0; i < out.lm_heads.size() && !out.vocab.rows.empty(); ++i) {
        out.lm_heads[i] = select_rows(backend_, std::move(out.lm_heads[i]), out.vocab);
        std::vector<float>& bias = out.lm_biases[i];
        std::vector<float> ordered;
        for (const TokenId row : out.vocab.rows)
            if (!bias.empty()) ordered.push_back(bias[row]);
        bias = std::move(ordered);
    }
    return {};
}

Status Reader::read(DecodingHeadWeights& out) {
    DS_TRY(find_layout());
    for (int head = 0; has(block_name(head, 0) + "weight"); ++head) {
        std::vector<ResidualBlock> blocks;
        for (int block = 0; block < blocks_; ++block) {
            DS_ASSIGN(auto one, read_block(head, block));
            blocks.push_back(std::move(one));
        }
        out.heads.push_back(std::move(blocks));
        DS_TRY(read_lm_head(head, out));
    }
    DS_TRY(read_vocab(out));
    return check_all_used(source_, used_, id());
}

Status check_config(const JsonFile& config, const Target& target, DecodingHeadKind kind,
                    DecodingHeadWeights& out) {
    DS_TRY(check_keys(config, decoding_head_keys, out.notes));
    const int vocab = target.config().vocab;
    DS_ASSIGN(const auto truncated, config.count("truncated_vocab_size", max_extent));
    out.trims = truncated.value_or(vocab) < vocab;
    for (const auto& [field, expected, difference] : {std::tuple("hidden_size", target.config().hidden, 0),
                                                      {"medusa_hidden_size", target.config().hidden, 0},
                                                      {"vocab_size", vocab, max_vocab_difference}}) {
        DS_ASSIGN(const auto found, config.count(field, max_extent));
        if (found && std::abs(*found - expected) > difference)
            return bad_input("{}: {} is {}, but the target has {}: this drafter was made for another target",
                             config.path(), field, *found, expected);
    }
    if (kind != DecodingHeadKind::hydra) return {};
    DS_ASSIGN(const auto head_arch, config.text("hydra_head_arch"));
    if (head_arch.value_or("mlp") != "mlp")
        return config.field_error("hydra_head_arch", "\"mlp\", the only supported architecture");
    const nlohmann::json* offset = config.find("hidden_state_offset");
    if (offset != nullptr && *offset != 0)
        return config.field_error("hidden_state_offset", "0: the hidden that the LM head reads");
    return {};
}

/// Notes a number of heads that the config does not say: published configs say 2 where files hold 5.
Status check_heads(const JsonFile& config, DecodingHeadWeights& out) {
    for (const char* field : {"medusa_num_heads", "hydra_num_heads", "num_medusa_heads", "num_heads"}) {
        DS_ASSIGN(const auto named, config.count(field, max_extent));
        if (named && *named != static_cast<int>(out.heads.size()))
            add_note(out.notes, "{}: {} is {}, but the file holds {} heads; all draft", config.path(), field,
                     *named, out.heads.size());
    }
    return {};
}

}  // namespace

std::size_t DecodingHeadWeights::bytes(int head) const {
    std::size_t total = 0;
    for (const ResidualBlock& block : heads[head]) total += block.bytes();
    return total;
}

Result<DecodingHeadWeights> load_decoding_heads(DecodingHeadKind kind, const std::string& drafter_source,
                                                const Target& target, kernels::Backend& backend) {
    const bool hydra = kind == DecodingHeadKind::hydra;
    DecodingHeadWeights out;
    DrafterFiles files;
    if (is_synthetic_drafter(drafter_source)) {
        DS_ASSIGN(files.weights,
                  make_synthetic_decoding_heads(drafter_source, target, synthetic_heads, hydra));
    } else {
        const std::span<const std::string_view> names = hydra
                                                            ? std::span<const std::string_view>(hydra_files)
                                                            : std::span<const std::string_view>(medusa_files);
        DS_ASSIGN(const DrafterSource from, parse_drafter_source(drafter_source, {}));
        DS_ASSIGN(files, open_drafter_files(from.path, names, out.notes));
        DS_TRY(hydra ? check_family(files, {"Hydra", "Medusa"}) : check_family(files, {"Medusa"}));
        if (files.config) DS_TRY(check_config(*files.config, target, kind, out));
    }
    DS_TRY(check_drafter_memory(*files.weights, target.lm_head().precision()));
    DS_TRY(Reader(kind, *files.weights, target, backend).read(out));
    if (files.config) DS_TRY(check_heads(*files.config, out));
    return out;
}

}  // namespace draftscope
