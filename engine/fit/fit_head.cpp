#include "engine/fit/fit_head.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/numel.h"
#include "engine/fit/low_rank.h"
#include "engine/heads/registry.h"
#include "engine/heads/static_vocab.h"

namespace draftscope::fit {
namespace {

/// The rows of a packed matrix as floats, as matmul reads them.
Dense unpack_rows(const kernels::Matrix& matrix, int rows) {
    Dense out(rows, matrix.k());
    for (int r = 0; r < rows; ++r) matrix.unpack_row(r, out.row(r));
    return out;
}

/// The rows of the drafter's LM head that a fitted head approximates, and the target's rows of the same
/// tokens. The teacher refers to the matrices, so the object is not copied.
struct ApproximationTarget {
    std::vector<TokenId> ids;  ///< token of each row, ascending; empty = row i is token i
    kernels::Matrix target_part, drafter_part;
    Teacher teacher;

    ApproximationTarget() = default;
    ApproximationTarget(const ApproximationTarget&) = delete;
    ApproximationTarget& operator=(const ApproximationTarget&) = delete;

    /// Takes the complete head: every real token, or those of a drafter's own trimmed head.
    void take_all(const FitInputs& in) {
        const HeadWeights& weights = in.weights;
        if (weights.row_ids.empty()) {
            teacher = {&in.target_head, weights.lm_head, weights.vocab};
            return;
        }
        ids.assign(weights.row_ids.begin(), weights.row_ids.end());
        target_part = in.target_head.gather_rows(in.backend.pool(), ids);
        teacher = {&target_part, weights.lm_head, static_cast<int>(ids.size())};
    }
    /// Takes the tokens that a trimmed head keeps.
    void take(const FitInputs& in, std::vector<TokenId> token_ids) {
        ids = std::move(token_ids);
        target_part = in.target_head.gather_rows(in.backend.pool(), ids);
        drafter_part =
            in.weights.lm_head->gather_rows(in.backend.pool(), lm_head_row_indices(in.weights, ids));
        teacher = {&target_part, &drafter_part, static_cast<int>(ids.size())};
    }
};

Result<Samples> collect(const FitInputs& in, const CollectOptions& options, const JobHooks& hooks,
                        Report& notes) {
    if (in.drafter == nullptr || in.texts == nullptr)
        return bad_input("this head is fitted on a drafter's hidden states; give --drafter and --recording");
    DS_ASSIGN(Samples samples,
              collect_samples(in.backend, *in.drafter, in.weights, in.context, *in.texts, options, hooks));
    notes["texts"] = samples.prompts;
    notes["texts_held_out"] = samples.held_out_prompts;
    notes["rounds"] = static_cast<double>(samples.anchors);
    notes["text_rows"] = samples.text.rows();
    notes["drafted_rows"] = samples.draft.rows();
    return samples;
}

/// Second moment of the head's inputs, without held-out rows.
std::vector<double> second_moment(kernels::Backend& backend, const Samples& samples) {
    SecondMoment moment(samples.text.hidden.width());
    Dense part;
    for (const SampleRows* rows : {&samples.text, &samples.draft}) {
        const std::vector<int> train = rows->indices(false);
        constexpr std::size_t chunk = 1024;
        for (std::size_t first = 0; first < train.size(); first += chunk) {
            const std::size_t count = std::min(chunk, train.size() - first);
            part.resize(static_cast<int>(count), moment.width());
            for (std::size_t i = 0; i < count; ++i)
                rows->hidden.read(train[first + i], part.row(static_cast<int>(i)));
            moment.add(backend, part.view());
        }
    }
    return moment.mean();
}

/// Returns "72/36", or "72" if all levels have that value.
std::string join_values(const std::vector<int>& values) {
    if (std::equal(values.begin() + 1, values.end(), values.begin())) return std::to_string(values.front());
    return fmt::format("{}", fmt::join(values, "/"));
}

/// Adds the tokens of an artefact's rows, if they are not all tokens.
void add_ids(const std::vector<TokenId>& ids, FittedHead& result) {
    if (!ids.empty()) result.tensors.push_back(integer_tensor("ids", {std::ssize(ids)}, ids));
}

/// Counts how often each row's token is the text's or among the full head's best, without held-out rows.
/// Every token has a minimum (our default).
std::vector<double> token_importance(const Samples& samples, const std::vector<TokenId>& ids, int support) {
    std::vector<double> counts(support);
    const auto count = [&](TokenId token, double share) {
        if (token == no_token) return;
        std::size_t row = token;
        if (!ids.empty()) {
            const auto found = std::lower_bound(ids.begin(), ids.end(), token);
            if (found == ids.end() || *found != token) return;
            row = found - ids.begin();
        }
        counts[row] += share;
    };
    for (const int row : samples.text.indices(false)) count(samples.text.token[row], 1.0);
    const std::size_t k = samples.draft.topk;
    for (const int row : samples.draft.indices(false))
        for (std::size_t c = 0; c < k; ++c)
            count(samples.draft.top[numel(row, k) + c], 1.0 / static_cast<double>(k));
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    const double floor = 0.2 * std::max(total, 1.0) / support;
    for (double& value : counts) value += floor;
    return counts;
}

/// The tokens that are always active and the first ones of the ranking that the drafter's head contains,
/// ascending.
Result<std::vector<TokenId>> select_tokens(const FitInputs& in, int size) {
    if (static_cast<int>(in.ranking.size()) < size)
        return bad_input("v={}, but the ranking has only {} tokens", size, in.ranking.size());
    std::vector<bool> selected(in.weights.vocab);
    int count = 0;
    const auto keep = [&](TokenId id) {
        if (count == size || !lm_head_has(in.weights, id) || selected[id]) return;
        selected[id] = true;
        ++count;
    };
    for (const TokenId id : in.weights.always_active) keep(id);
    for (const TokenId id : in.ranking) keep(id);
    if (count < size)
        return bad_input("v={}, but the drafter's head has only {} tokens of the ranking", size, count);
    std::vector<TokenId> ids;
    for (std::size_t id = 0; id < selected.size(); ++id)
        if (selected[id]) ids.push_back(static_cast<TokenId>(id));
    return ids;
}

/// Has PyTorch train the parameters and replaces them by the result.
Status train(const FitInputs& in, const TrainingData& data, std::map<std::string, Dense*> parameters,
             Report& notes) {
    if (!in.train) return bad_input("this fit trains, and there is no PyTorch to do it");
    DS_ASSIGN(Trained trained, in.train(data));
    for (const auto& [name, values] : parameters) {
        const auto found = trained.parameters.find(name);
        if (found == trained.parameters.end() || found->second.rows != values->rows ||
            found->second.cols != values->cols)
            return failed("the trainer returned no '{}' of [{}, {}]", name, values->rows, values->cols);
        *values = std::move(found->second);
    }
    notes.merge(trained.notes);
    return {};
}

/// Checks that some rows are trained on and some evaluated.
Status check_rows(std::size_t learnt, std::size_t held_out) {
    if (learnt > 0 && held_out > 0) return {};
    return bad_input(
        "fit: {} rows to train on and {} held out; the recording is too small, record more prompts", learnt,
        held_out);
}

/// Fits SlimSpec, SpecVocab, VocabTrim-T and BCL: closed form or the LM head's own rows, then forward KL,
/// with p renormalised on a trimmed support. Post-hoc, drafter and exact head are fixed, so SpecVocab's joint
/// loss L(p, q) + lambda L(p, q_aux) leaves L(p, q_aux). Lambda then scales a gradient that Adam normalises,
/// so SlimSpec's and SpecVocab's factors come from the same fit. A joint fit starts as the post-hoc one, and
/// its report is of the trained drafter, loaded from its file.
class DivergenceFit {
  public:
    DivergenceFit(const FitInputs& in, const FitOptions& options, const FitRecipe& recipe,
                  const JobHooks& hooks)
        : in_(in),
          options_(options),
          recipe_(recipe),
          hooks_(hooks),
          low_rank_(recipe.has(FitRecipe::low_rank)) {}

    Result<FittedHead> run() {
        DS_TRY(check_inputs());
        DS_ASSIGN(samples_, collect(in_, options_.collect, hooks_, result_.notes));
        DS_TRY(hooks_.check());
        hooks_.report(-1, "closed form");
        DS_TRY(low_rank_ ? start_low_rank() : start_trimmed());
        std::unique_ptr<Drafter> trained_drafter;
        if (in_.joint != nullptr) {
            samples_ = Samples(0, 0);
            const TextSplit split = split_texts(*in_.texts, options_.collect.hold_out);
            DS_TRY(train_factors(joint_data(*in_.joint, target_.teacher, factors_, split)));
            DS_ASSIGN(trained_drafter, in_.joint->reload());
            FitInputs after = in_;
            after.drafter = trained_drafter.get();
            DS_ASSIGN(samples_, collect(after, options_.collect, hooks_, result_.notes));
        } else if (options_.train) {
            const auto rows = [&](bool held) {
                return samples_.text.indices(held).size() + samples_.draft.indices(held).size();
            };
            DS_TRY(check_rows(rows(false), rows(true)));
            DS_TRY(train_factors(divergence_data(samples_, target_.teacher, factors_, options_.kl)));
        }
        finish();
        return std::move(result_);
    }

  private:
    /// Checks sizes and the start before the drafter runs for minutes.
    Status check_inputs() const {
        if (low_rank_) {
            if (in_.start != nullptr) DS_TRY(in_.start->fits(in_.weights));
            for (const int rank : options_.ranks)
                if (rank < 1 || rank > in_.weights.hidden)
                    return bad_input("rank={} does not fit a head of {} inputs; use 1..{}", rank,
                                     in_.weights.hidden, in_.weights.hidden);
        } else if (options_.v < 0 || options_.v > in_.weights.vocab) {
            return bad_input("v={} does not fit the target, which has {} tokens", options_.v,
                             in_.weights.vocab);
        }
        return {};
    }

    Report evaluate() const {
        return evaluate_head(in_.backend, samples_, target_.teacher, factors_, target_.ids);
    }
    /// Adds the divergences of the factors so far to the notes.
    void note_stage(const char* stage) {
        const Report report = evaluate();
        for (const char* name : {"kl", "kl_drafter"})
            if (const auto found = report.find(name); found != report.end())
                result_.notes[fmt::format("{}_{}", name, stage)] = found->second;
    }

    /// Loads the factors of the weights that the fit goes on from.
    Status load_start() {
        const HeadArtefact& start = *in_.start;
        const auto load = [&](const std::string& name, int rows, int columns) -> Result<Dense> {
            DS_ASSIGN(const kernels::Matrix matrix,
                      start.matrix(in_.backend, kernels::Precision::f32, name, rows, columns));
            return unpack_rows(matrix, matrix.n());
        };
        DS_ASSIGN(factors_.up, load(std::string(recipe_.up), target_.teacher.support, -1));
        for (int level = 0; level < std::max(1, start.levels("down")); ++level) {
            DS_ASSIGN(Dense down, load(start.at_level("down", level), -1, in_.weights.hidden));
            if (down.rows > factors_.up.cols)
                return bad_input("{}: tensor 'down' has rank {}, but tensor '{}' has {}; the file is damaged",
                                 start.path(), down.rows, recipe_.up, factors_.up.cols);
            ranks_.push_back(down.rows);
            factors_.down.push_back(std::move(down));
        }
        return {};
    }

    /// Computes the closed form of a low-rank head and reports that of the plain SVD. Of the forms with equal
    /// and with counted token importance, the better one on held-out text is the start (our default).
    Status start_low_rank() {
        target_.take_all(in_);
        if (in_.start != nullptr) {
            DS_TRY(load_start());
            note_stage("start");
            return {};
        }
        ranks_ = options_.ranks;
        if (ranks_.empty()) ranks_ = {std::max(1, in_.weights.hidden / 8)};
        if (options_.per_level && ranks_.size() == 1) ranks_.assign(samples_.levels, ranks_.front());
        const int support = target_.teacher.support;
        const Dense rows = unpack_rows(*target_.teacher.drafter_rows, support);
        const auto start_from = [&](const std::vector<double>& moment,
                                    std::span<const double> importance) -> Status {
            DS_ASSIGN(factors_, low_rank_factors(in_.backend, rows.view(), moment, ranks_, importance));
            return {};
        };
        DS_TRY(start_from(identity_moment(in_.weights.hidden), {}));
        note_stage("plain_svd");
        const std::vector<double> moment = second_moment(in_.backend, samples_);
        DS_TRY(start_from(moment, {}));
        note_stage("closed_form");
        DS_TRY(start_from(moment, token_importance(samples_, target_.ids, support)));
        note_stage("weighted_form");
        if (result_.notes["kl_weighted_form"] > result_.notes["kl_closed_form"])
            DS_TRY(start_from(moment, {}));
        return {};
    }

    /// Starts from the kept rows of the LM head.
    Status start_trimmed() {
        const int size = options_.v > 0 ? options_.v : std::max(1, in_.weights.vocab / 4 / 64 * 64);
        DS_ASSIGN(std::vector<TokenId> ids, select_tokens(in_, size));
        target_.take(in_, std::move(ids));
        factors_.up = unpack_rows(target_.drafter_part, target_.teacher.support);
        note_stage("untrained");
        return {};
    }

    Status train_factors(const TrainingData& data) {
        std::map<std::string, Dense*> parameters{{"up", &factors_.up}};
        for (std::size_t l = 0; l < factors_.down.size(); ++l)
            parameters[fmt::format("down.{}", l)] = &factors_.down[l];
        return train(in_, data, std::move(parameters), result_.notes);
    }

    /// Rounds the weights to the precision of the file, evaluates them, and creates the tensors.
    void finish() {
        for (Dense& down : factors_.down) round_to_f16(down.values());
        round_to_stored(factors_.up, options_.int8);
        result_.report = evaluate();
        add_ids(target_.ids, result_);
        const bool one = factors_.down.size() == 1;
        for (std::size_t l = 0; l < factors_.down.size(); ++l)
            result_.tensors.push_back(f16_tensor(one ? "down" : fmt::format("down.{}", l), factors_.down[l]));
        const std::string up(low_rank_ ? recipe_.up : "weight");
        if (!options_.int8)
            result_.tensors.push_back(f16_tensor(up, factors_.up));
        else
            for (FittedTensor& tensor : int8_tensors(up, factors_.up))
                result_.tensors.push_back(std::move(tensor));
        auto& parameters = result_.parameters;
        if (low_rank_) {
            parameters["rank"] = join_values(ranks_);
        } else {
            parameters["v"] = std::to_string(factors_.up.rows);
            parameters["eos"] = in_.weights.always_active.empty() ? "no" : "yes";
        }
        if (recipe_.has(FitRecipe::alpha_rows)) parameters["alpha"] = fmt::format("{}", options_.alpha);
    }

    const FitInputs& in_;
    const FitOptions& options_;
    const FitRecipe& recipe_;
    const JobHooks& hooks_;
    const bool low_rank_;
    Samples samples_{0, 0};
    ApproximationTarget target_;
    HeadFactors factors_;
    std::vector<int> ranks_;  ///< of a low-rank head
    FittedHead result_;
};

void store_router(const RouterWeights& router, FittedHead& result) {
    const auto bias = [&](std::string name, const std::vector<float>& values) {
        result.tensors.push_back(
            f16_tensor(std::move(name), {static_cast<std::int64_t>(values.size())}, values));
    };
    result.tensors.push_back(f16_tensor("router.in.weight", router.in));
    bias("router.in.bias", router.in_bias);
    result.tensors.push_back(f16_tensor("router.out.weight", router.out));
    bias("router.out.bias", router.out_bias);
    result.parameters["activation"] = "silu";
}

/// LM-head rows by token id; zeros for tokens that a drafter's own trimmed head lacks.
Dense rows_by_token(const FitInputs& in) {
    if (in.weights.row_ids.empty()) return unpack_rows(*in.weights.lm_head, in.weights.vocab);
    Dense rows(in.weights.vocab, in.weights.hidden);
    for (std::size_t r = 0; r < in.weights.row_ids.size(); ++r)
        in.weights.lm_head->unpack_row(static_cast<int>(r), rows.row(in.weights.row_ids[r]));
    return rows;
}

/// Fits DynaSpec (clusters of any size) and CORAL (groups of equal size), each with its router.
Result<FittedHead> fit_routed(const FitInputs& in, const FitOptions& options, bool clustered,
                              const JobHooks& hooks) {
    CollectOptions collect_options = options.collect;
    collect_options.router_inputs = clustered;
    FittedHead result;
    DS_ASSIGN(const Samples samples, collect(in, collect_options, hooks, result.notes));
    const int groups = clustered ? options.clusters : options.groups;
    KmeansOptions kmeans;
    kmeans.clusters = groups;
    kmeans.seed = options.router.seed;
    const Dense rows = rows_by_token(in);
    DS_ASSIGN(const Clusters clusters, spherical_kmeans(in.backend, rows.view(), kmeans, hooks));
    std::vector<std::int32_t> group_of = clusters.cluster_of;
    if (!clustered) {
        if (static_cast<int>(in.ranking.size()) != in.weights.vocab)
            return bad_input("{}: the ranking has {} tokens, but the target has {}", options.head,
                             in.ranking.size(), in.weights.vocab);
        group_of = balanced_groups(in.backend, rows.view(), clusters, in.ranking);
    }
    const RouterInput input = clustered ? RouterInput::embedding_and_parent : RouterInput::hidden;
    RouterOptions router_options = options.router;
    if (!clustered) router_options.width = in.weights.hidden;  // one d x d layer
    DS_TRY(check_rows(samples.draft.indices(false).size(), samples.draft.indices(true).size()));
    const int inputs = in.weights.hidden * (clustered ? 2 : 1);
    Dense in_bias(1, router_options.width), out_bias(1, groups);
    RouterWeights router{Dense(router_options.width, inputs), {}, Dense(groups, router_options.width), {}};
    DS_TRY(train(in, router_data(samples.draft, input, group_of, groups, router_options),
                 {{"router.in.weight", &router.in},
                  {"router.in.bias", &in_bias},
                  {"router.out.weight", &router.out},
                  {"router.out.bias", &out_bias}},
                 result.notes));
    router.in_bias = in_bias.data;
    router.out_bias = out_bias.data;
    result.notes["clusters_spread"] = clusters.objective.back();
    for (Dense* weights : {&router.in, &router.out}) round_to_f16(weights->values());
    const int chosen = std::max(1, (groups + 3) / 4);  // the heads' default budget
    result.report =
        evaluate_router(in.backend, samples, router, input, group_of, chosen, in.weights.always_active);
    result.report["chosen"] = chosen;
    // The spec's eos= decides at run time, so this is no parameter.
    result.notes["always_active"] = static_cast<double>(in.weights.always_active.size());
    result.tensors.push_back(integer_tensor(clustered ? "clusters" : "groups", {in.weights.vocab}, group_of));
    store_router(router, result);
    result.parameters[clustered ? "clusters" : "groups"] = std::to_string(groups);
    if (clustered) result.parameters["r"] = std::to_string(router_options.width);
    return result;
}

Result<FittedHead> fit_affinity(const FitInputs& in, const FitOptions& options, const JobHooks& hooks) {
    ApproximationTarget target;
    target.take_all(in);
    const std::vector<TokenId>& ids = target.ids;
    const Dense rows = unpack_rows(*target.teacher.drafter_rows, target.teacher.support);
    DS_ASSIGN(AffinityMatrix affinity, token_affinity(in.backend, rows.view(), options.affinity, hooks));
    if (!ids.empty())
        for (std::int32_t& neighbour : affinity.neighbours) neighbour = ids[neighbour];
    FittedHead result;
    const std::vector<std::int64_t> shape{rows.rows, affinity.width};
    result.tensors.push_back(integer_tensor("neighbours", shape, affinity.neighbours));
    result.tensors.push_back(f16_tensor("weights", shape, affinity.weights));
    add_ids(ids, result);
    result.parameters["neighbours"] = std::to_string(affinity.width);
    return result;
}

}  // namespace

Result<FittedHead> fit_head(const FitInputs& inputs, const FitOptions& options, const JobHooks& hooks) {
    const HeadInfo* info = find_head_or_suffix(options.head);
    const FitRecipe recipe = info == nullptr ? FitRecipe() : info->fit;
    if (recipe.has(FitRecipe::by_divergence)) return DivergenceFit(inputs, options, recipe, hooks).run();
    if (recipe.has(FitRecipe::routers))
        return fit_routed(inputs, options, recipe.has(FitRecipe::clusters), hooks);
    if (recipe.has(FitRecipe::affinity)) return fit_affinity(inputs, options, hooks);
    return bad_input("head {}: nothing to fit", options.head);
}

}  // namespace draftscope::fit
