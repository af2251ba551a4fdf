#include "engine/fit/joint.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/rng.h"
#include "engine/draft/registry.h"
#include "kernels/gemm.h"
#include "kernels/matmul.h"

namespace draftscope::fit {
namespace {

using kernels::Operand;

struct NamedShape {
    Dense* tensor;
    std::string name;
    int rows, cols;
};

/// The name of each weight in a checkpoint, and its shape.
std::vector<NamedShape> layout(JointDrafter& drafter) {
    const EagleShape& s = drafter.shape;
    EagleWeights& w = drafter.weights;
    EagleCheckpoint& checkpoint = drafter.checkpoint;
    const auto in_layer = [&](std::string_view name) {
        return checkpoint.name("layers.0." + std::string(name));
    };
    const int inputs = s.eagle3 ? 2 * s.hidden : s.hidden;
    std::vector<NamedShape> list{
        {&w.fc, checkpoint.name("fc.weight"), s.hidden, s.eagle3 ? s.features : 2 * s.hidden},
        {&w.q, in_layer("self_attn.q_proj.weight"), s.heads * s.head_dim, inputs},
        {&w.k, in_layer("self_attn.k_proj.weight"), s.kv_heads * s.head_dim, inputs},
        {&w.v, in_layer("self_attn.v_proj.weight"), s.kv_heads * s.head_dim, inputs},
        {&w.o, in_layer("self_attn.o_proj.weight"), s.hidden, s.heads * s.head_dim},
        {&w.gate, in_layer("mlp.gate_proj.weight"), s.ffn, s.hidden},
        {&w.up, in_layer("mlp.up_proj.weight"), s.ffn, s.hidden},
        {&w.down, in_layer("mlp.down_proj.weight"), s.hidden, s.ffn},
        {&w.post_norm, in_layer("post_attention_layernorm.weight"), 1, s.hidden}};
    if (checkpoint.has("fc.bias")) list.push_back({&w.fc_bias, checkpoint.name("fc.bias"), 1, s.hidden});
    if (s.eagle3) {
        list.push_back({&w.input_norm, in_layer("input_layernorm.weight"), 1, s.hidden});
        list.push_back({&w.hidden_norm, in_layer("hidden_norm.weight"), 1, s.hidden});
        list.push_back({&w.final_norm, checkpoint.name("norm.weight"), 1, s.hidden});
    }
    return list;
}

/// z = W h with fixed W. Only the hidden states get a gradient.
class FixedHead {
  public:
    explicit FixedHead(const kernels::Matrix& rows, int support) : weights_(support, rows.k()) {
        for (int r = 0; r < support; ++r) rows.unpack_row(r, weights_.row(r));
    }
    void forward(kernels::Exec& exec, Rows<const float> hidden, Rows<float> logits) const {
        kernels::gemm(exec, Operand::plain, hidden, Operand::transposed, weights_.view(), logits);
    }
    void add_back(kernels::Exec& exec, Rows<const float> d_logits, Rows<float> d_hidden) const {
        kernels::gemm(exec, Operand::plain, d_logits, Operand::plain, weights_.view(), d_hidden, true);
    }

  private:
    Dense weights_;
};

/// A position in a text at which a draft step predicts a generated token.
struct Position {
    int step, slot;
};

class JointTrainer {
  public:
    JointTrainer(kernels::Exec& exec, JointDrafter& drafter, const Target& target, const Teacher& teacher,
                 Student& student, TextSource& texts, const JointOptions& options, const Hooks& hooks)
        : exec_(exec),
          drafter_(drafter),
          target_(target),
          teacher_(teacher),
          student_(student),
          texts_(texts),
          options_(options),
          hooks_(hooks),
          pass_(drafter.shape, drafter.weights, drafter.checkpoint.rope) {
        if (options.lambda > 0) exact_.emplace(*teacher.drafter_rows, teacher.support);
    }

    Result<KlReport> run();

  private:
    /// Returns the loss of a text. If `learn`, also computes all gradients.
    Result<double> text_loss(int index, bool learn);
    bool run_drafter(const FitText& text);
    void gather_positions(const FitText& text);
    void score_teacher(const FitText& text);
    double head_loss(bool learn);
    double divergence(Rows<float> logits, double scale);
    Result<double> held_out_loss();
    std::vector<Parameter> parameters() {
        std::vector<Parameter> all = pass_.parameters();
        for (const Parameter& p : student_.parameters()) all.push_back(p);
        return all;
    }

    kernels::Exec& exec_;
    JointDrafter& drafter_;
    const Target& target_;
    const Teacher& teacher_;
    Student& student_;
    TextSource& texts_;
    JointOptions options_;
    const Hooks& hooks_;
    EaglePass pass_;
    std::optional<FixedHead> exact_;
    std::vector<int> train_, held_;
    std::vector<Position> positions_;
    std::vector<std::uint8_t> levels_;
    std::vector<float> weights_, kl_;
    Dense embeddings_, features_, hidden_, d_hidden_, teacher_hidden_, teacher_logits_, logits_;
    int slots_ = 0;
};

/// Returns false if the text is too short to evaluate a draft step.
bool JointTrainer::run_drafter(const FitText& text) {
    const auto tokens = static_cast<int>(text.tokens.size());
    slots_ = std::min(tokens - 2, options_.max_slots);
    if (slots_ < 1 || text.prompt_tokens > slots_ + 1) return false;
    // Steps after the text's end read its last token; their outputs are not used.
    std::vector<TokenId> fed(slots_ + options_.steps);
    for (std::size_t j = 0; j < fed.size(); ++j)
        fed[j] = text.tokens[std::min(j + 1, text.tokens.size() - 1)];
    embeddings_.resize(static_cast<int>(fed.size()), drafter_.shape.hidden);
    embed_for_eagle(drafter_.checkpoint, target_, fed, embeddings_.view());
    const Dense& source = drafter_.shape.eagle3 ? text.aux : text.hidden;
    pass_.forward(exec_, source.view().slice(0, slots_), embeddings_.view(), options_.steps);
    return true;
}

void JointTrainer::gather_positions(const FitText& text) {
    positions_.clear();
    const auto tokens = static_cast<int>(text.tokens.size());
    for (int step = 0; step < options_.steps; ++step)
        for (int slot = 0; slot < slots_; ++slot)
            if (slot + 2 + step >= text.prompt_tokens && slot + 2 + step < tokens)
                positions_.push_back({step, slot});
    const std::size_t limit = options_.max_rows;
    if (positions_.size() > limit) {
        std::vector<Position> kept;
        for (std::size_t i = 0; i < limit; ++i) kept.push_back(positions_[i * positions_.size() / limit]);
        positions_ = std::move(kept);
    }
    levels_.clear();
    weights_.clear();
    double total = 0;
    for (const Position& position : positions_) {
        levels_.push_back(static_cast<std::uint8_t>(position.step));
        total += std::pow(options_.step_decay, position.step);
    }
    for (const Position& position : positions_)
        weights_.push_back(static_cast<float>(std::pow(options_.step_decay, position.step) / total));
}

void JointTrainer::score_teacher(const FitText& text) {
    const int count = static_cast<int>(positions_.size()), d = drafter_.shape.hidden;
    hidden_.resize(count, d);
    teacher_hidden_.resize(count, d);
    for (int r = 0; r < count; ++r) {
        const Position& position = positions_[r];
        const auto from = pass_.lm_head_input(position.step).row(position.slot);
        std::copy(from.begin(), from.end(), hidden_.row(r).begin());
        // Both predict the token after slot + 1 + step.
        const auto wanted = text.hidden.row(position.slot + 1 + position.step);
        std::copy(wanted.begin(), wanted.end(), teacher_hidden_.row(r).begin());
    }
    teacher_logits_.resize(count, teacher_.target_rows->n());
    kernels::matmul(exec_, *teacher_.target_rows, teacher_hidden_.view(), teacher_logits_.view());
}

/// Returns the weighted divergence of the logits and replaces them by its gradient times `scale`.
double JointTrainer::divergence(Rows<float> logits, double scale) {
    const Rows<const float> teacher(teacher_logits_.data.data(), logits.rows, teacher_.support,
                                    teacher_logits_.cols);
    std::vector<float> scaled(weights_);
    for (float& weight : scaled) weight *= static_cast<float>(scale);
    kl_.resize(scaled.size());
    kernels::forward_kl(exec_, teacher, logits, scaled, kl_, logits);
    double sum = 0;
    for (std::size_t r = 0; r < kl_.size(); ++r)
        sum += static_cast<double>(kl_[r]) * static_cast<double>(scaled[r]);
    return sum;
}

double JointTrainer::head_loss(bool learn) {
    const int count = hidden_.rows;
    logits_.resize(count, teacher_.support);
    d_hidden_.resize(count, drafter_.shape.hidden);
    student_.forward(exec_, hidden_.view(), levels_, logits_.view());
    double loss = divergence(logits_.view(), exact_ ? options_.lambda : 1.0);
    if (learn) student_.backward(exec_, hidden_.view(), levels_, logits_.view(), d_hidden_.view());
    if (!exact_) return loss;
    exact_->forward(exec_, hidden_.view(), logits_.view());
    loss += divergence(logits_.view(), 1.0);
    if (learn) exact_->add_back(exec_, logits_.view(), d_hidden_.view());
    return loss;
}

Result<double> JointTrainer::text_loss(int index, bool learn) {
    DS_ASSIGN(const FitText text, texts_.load(index));
    if (!run_drafter(text)) return -1.0;
    gather_positions(text);
    if (positions_.empty()) return -1.0;
    score_teacher(text);
    const double loss = head_loss(learn);
    if (!learn) return loss;
    std::vector<Dense> d_head(options_.steps, Dense(slots_, drafter_.shape.hidden));
    for (std::size_t r = 0; r < positions_.size(); ++r) {
        const auto from = d_hidden_.row(static_cast<int>(r));
        const auto to = d_head[positions_[r].step].row(positions_[r].slot);
        std::copy(from.begin(), from.end(), to.begin());
    }
    pass_.backward(exec_, d_head);
    return loss;
}

Result<double> JointTrainer::held_out_loss() {
    double sum = 0;
    int counted = 0;
    for (const int index : held_) {
        DS_TRY(hooks_.check());
        DS_ASSIGN(const double loss, text_loss(index, false));
        if (loss < 0) continue;
        sum += loss;
        ++counted;
    }
    if (counted == 0)
        return bad_input(
            "fit: no held-out text is long enough to evaluate a draft step; record longer texts");
    return sum / counted;
}

Result<KlReport> JointTrainer::run() {
    const TextSplit split = split_texts(texts_, options_.hold_out);
    train_ = split.texts(false);
    held_ = split.texts(true);
    if (train_.empty() || held_.empty())
        return bad_input("fit: {} texts are too few to train on and hold some out; record more prompts",
                         split.usable().size());
    AdamOptions adam_options;
    adam_options.rate = options_.rate;
    adam_options.clip = options_.clip;
    adam_options.steps = options_.epochs * static_cast<int>(train_.size());
    adam_options.warmup = std::min(options_.warmup, adam_options.steps / 4);
    Adam adam(adam_options);
    Rng rng(options_.seed, 5);
    KlReport report;
    DS_ASSIGN(report.kl_before, held_out_loss());
    report.kl_after = report.kl_before;
    std::vector<std::vector<float>> kept;
    const auto keep = [&] {
        kept.clear();
        for (const Parameter& p : parameters()) kept.emplace_back(p.values.begin(), p.values.end());
    };
    keep();
    for (int epoch = 1; epoch <= options_.epochs; ++epoch) {
        for (std::size_t i = train_.size(); i > 1; --i)
            std::swap(train_[i - 1], train_[rng.below(static_cast<std::uint32_t>(i))]);
        for (const int index : train_) {
            DS_TRY(hooks_.check());
            DS_ASSIGN(const double loss, text_loss(index, true));
            if (loss < 0) continue;
            adam.step(exec_, parameters());
            ++report.steps;
            hooks_.report(static_cast<double>(report.steps) / adam_options.steps,
                          fmt::format("training drafter and head, epoch {} of {}, loss {:.3f}", epoch,
                                      options_.epochs, loss));
        }
        DS_ASSIGN(const double loss, held_out_loss());
        if (loss >= report.kl_after) continue;
        report.kl_after = loss;
        report.best_epoch = epoch;
        keep();
    }
    const std::vector<Parameter> all = parameters();
    for (std::size_t i = 0; i < kept.size(); ++i)
        std::copy(kept[i].begin(), kept[i].end(), all[i].values.begin());
    return report;
}

}  // namespace

Result<JointDrafter> load_joint_drafter(const std::string& id, const std::string& folder,
                                        const Target& target) {
    const auto generation = drafter_traits(id).eagle;
    if (!generation) return bad_input("--joint: trains only eagle2 and eagle3 drafters, not {}", id);
    JointDrafter drafter;
    const bool eagle3 = *generation == EagleGeneration::eagle3;
    DS_ASSIGN(drafter.checkpoint, open_eagle_checkpoint(*generation, folder, target));
    EagleCheckpoint& checkpoint = drafter.checkpoint;
    const WeightSource& source = *checkpoint.weights;
    if (eagle3 && checkpoint.has("lm_head.weight"))
        return bad_input("{}: --joint replaces the head, but this drafter has its own lm_head.weight",
                         source.path());
    if (checkpoint.layout == EagleLayout::gguf || checkpoint.norm_before_fc || checkpoint.fc_norm ||
        checkpoint.norm_output || checkpoint.target_hidden != checkpoint.shape.hidden)
        return bad_input(
            "{}: --joint trains safetensors checkpoints of the target's hidden size, without the variants "
            "norm_before_fc, fc_norm and norm_output",
            source.path());
    const LayerShape& layer = drafter.checkpoint.shape;
    EagleShape& shape = drafter.shape;
    shape.hidden = layer.hidden;
    shape.heads = layer.heads;
    shape.kv_heads = layer.kv_heads;
    shape.head_dim = layer.head_dim;
    shape.ffn = layer.ffn;
    shape.norm_eps = layer.norm_eps;
    shape.eagle3 = eagle3;
    shape.norm_before_residual = drafter.checkpoint.norm_before_residual;
    shape.features =
        shape.eagle3 ? static_cast<int>(drafter.checkpoint.aux_layers.size()) * layer.hidden : layer.hidden;
    for (const NamedShape& part : layout(drafter)) {
        const TensorInfo* tensor = source.find(part.name);
        if (tensor == nullptr) return bad_input("{}: tensor '{}' is missing", source.path(), part.name);
        if (tensor->rows() != part.rows || tensor->cols() != part.cols)
            return bad_input("{}: tensor '{}' is [{}, {}], expected [{}, {}]", source.path(), part.name,
                             tensor->rows(), tensor->cols(), part.rows, part.cols);
        *part.tensor = Dense(part.rows, part.cols);
        for (int r = 0; r < part.rows; ++r) source.read_row(*tensor, r, part.tensor->row(r).data());
    }
    return drafter;
}

std::vector<FittedTensor> checkpoint_tensors(JointDrafter& drafter) {
    std::vector<FittedTensor> tensors;
    for (const NamedShape& part : layout(drafter)) {
        FittedTensor tensor = f16_tensor(part.name, *part.tensor);
        if (part.rows == 1) tensor.shape = {part.cols};
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

Result<KlReport> train_joint(kernels::Exec& exec, JointDrafter& drafter, const Target& target,
                             const Teacher& teacher, Student& student, TextSource& texts,
                             const JointOptions& options, const Hooks& hooks) {
    return JointTrainer(exec, drafter, target, teacher, student, texts, options, hooks).run();
}

}  // namespace draftscope::fit
