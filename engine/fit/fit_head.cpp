#include "engine/fit/fit_head.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/numel.h"
#include "engine/fit/joint.h"
#include "engine/fit/low_rank.h"
#include "engine/formats/dequant.h"
#include "engine/heads/registry.h"
#include "engine/heads/static_vocab.h"
#include "engine/recording/recording_writer.h"

namespace draftscope::fit {
namespace {

template <typename T>
std::vector<std::byte> to_bytes(std::span<const T> values) {
    std::vector<std::byte> bytes(values.size_bytes());
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

template <typename T>
std::vector<std::byte> to_bytes_as(std::span<const std::int32_t> values) {
    const std::vector<T> narrow(values.begin(), values.end());
    return to_bytes<T>(narrow);
}

bool all_below(std::span<const std::int32_t> values, std::int32_t limit) {
    return std::all_of(values.begin(), values.end(),
                       [&](std::int32_t value) { return value >= 0 && value < limit; });
}

FittedTensor make_f16_tensor(std::string name, std::vector<std::int64_t> shape,
                             std::span<const float> values) {
    std::vector<std::uint16_t> stored(values.size());
    std::transform(values.begin(), values.end(), stored.begin(), f32_to_f16);
    return {std::move(name), "F16", std::move(shape), to_bytes<std::uint16_t>(stored)};
}

/// Rounds to the precision of the artefact, so that the report describes the stored head.
void round_to_f16(std::span<float> values) {
    for (float& value : values) value = f16_to_f32(f32_to_f16(value));
}

/// A matrix as an artefact stores it. 64 columns share a scale.
struct Int8Matrix {
    std::vector<std::int8_t> values;
    std::vector<float> scales;  ///< [rows, groups], rounded to f16
    int groups = 0;
};

Int8Matrix to_int8(const Dense& dense) {
    constexpr int group = 64;
    Int8Matrix out;
    out.groups = (dense.cols + group - 1) / group;
    out.values.resize(dense.values().size());
    out.scales.resize(numel(dense.rows, out.groups));
    for (int r = 0; r < dense.rows; ++r)
        for (int g = 0; g < out.groups; ++g) {
            const int first = g * group, last = std::min(first + group, dense.cols);
            const float* row = dense.row(r).data();
            float max_abs = 0;
            for (int c = first; c < last; ++c) max_abs = std::max(max_abs, std::abs(row[c]));
            const float scale = f16_to_f32(f32_to_f16(max_abs / 127));
            out.scales[numel(r, out.groups) + g] = scale;
            for (int c = first; c < last && scale > 0; ++c)
                out.values[numel(r, dense.cols) + c] =
                    static_cast<std::int8_t>(std::clamp(std::lround(row[c] / scale), -127l, 127l));
        }
    return out;
}

void round_to_stored(Dense& dense, bool int8) {
    if (!int8) return round_to_f16(dense.values());
    const Int8Matrix stored = to_int8(dense);
    for (int r = 0; r < dense.rows; ++r)
        for (int c = 0; c < dense.cols; ++c)
            dense.row(r)[c] = static_cast<float>(stored.values[numel(r, dense.cols) + c]) *
                              stored.scales[numel(r, stored.groups) + c / 64];
}

/// The rows of a packed matrix as floats, as matmul reads them.
Dense unpack_rows(const kernels::Matrix& matrix, int rows) {
    Dense out(rows, matrix.k());
    for (int r = 0; r < rows; ++r) matrix.unpack_row(r, out.row(r));
    return out;
}

/// The rows of the drafter's LM head that a fitted head approximates, and the target's rows of the same
/// tokens. The teacher refers to the matrices, so the object stays where its factory makes it.
struct ApproximationTarget {
    std::vector<TokenId> ids;  ///< token of each row, ascending; empty = row i is token i
    kernels::Matrix target_part, drafter_part;
    Teacher teacher;

    ApproximationTarget() = default;
    ApproximationTarget(const ApproximationTarget&) = delete;
    ApproximationTarget& operator=(const ApproximationTarget&) = delete;
};

/// The complete head: every real token, or those of a drafter's own trimmed head.
std::unique_ptr<const ApproximationTarget> make_full_target(const FitInputs& in) {
    auto result = std::make_unique<ApproximationTarget>();
    const HeadWeights& weights = in.weights;
    if (weights.row_ids.empty()) {
        result->teacher = {
            .target_rows = &in.target_head, .drafter_rows = weights.lm_head, .support = weights.vocab};
        return result;
    }
    result->ids.assign(weights.row_ids.begin(), weights.row_ids.end());
    result->target_part = in.target_head.gather_rows(in.exec, result->ids);
    result->teacher = {&result->target_part, weights.lm_head, static_cast<int>(result->ids.size())};
    return result;
}

/// The kept tokens of a trimmed head.
std::unique_ptr<const ApproximationTarget> make_trimmed_target(const FitInputs& in,
                                                               std::vector<TokenId> ids) {
    auto result = std::make_unique<ApproximationTarget>();
    result->ids = std::move(ids);
    result->target_part = in.target_head.gather_rows(in.exec, result->ids);
    result->drafter_part =
        in.weights.lm_head->gather_rows(in.exec, lm_head_row_indices(in.weights, result->ids));
    result->teacher = {&result->target_part, &result->drafter_part, static_cast<int>(result->ids.size())};
    return result;
}

Result<Samples> collect(const FitInputs& in, const CollectOptions& options, const Hooks& hooks) {
    if (in.drafter == nullptr || in.texts == nullptr)
        return bad_input("this head is fitted on a drafter's hidden states; give --drafter and --recording");
    return collect_samples(in.exec, *in.drafter, in.weights, in.context, *in.texts, options, hooks);
}

void note_samples(const Samples& samples, Report& notes) {
    notes["texts"] = samples.prompts;
    notes["texts_held_out"] = samples.held_out_prompts;
    notes["rounds"] = static_cast<double>(samples.anchors);
    notes["text_rows"] = samples.text.rows();
    notes["drafted_rows"] = samples.drafted.rows();
}

/// Second moment of the head's inputs, without held-out rows.
std::vector<double> second_moment(kernels::Exec& exec, const Samples& samples) {
    SecondMoment moment(samples.text.hidden.width());
    Dense part;
    for (const SampleRows* rows : {&samples.text, &samples.drafted}) {
        const std::vector<int> train = rows->indices(false);
        constexpr std::size_t chunk = 1024;
        for (std::size_t first = 0; first < train.size(); first += chunk) {
            const std::size_t count = std::min(chunk, train.size() - first);
            part.resize(static_cast<int>(count), moment.width());
            for (std::size_t i = 0; i < count; ++i)
                rows->hidden.read(train[first + i], part.row(static_cast<int>(i)));
            moment.add(exec, part.view());
        }
    }
    return moment.mean();
}

/// Returns "72/36", or "72" if all levels have that value.
std::string join_values(const std::vector<int>& values) {
    if (std::equal(values.begin() + 1, values.end(), values.begin())) return std::to_string(values.front());
    return fmt::format("{}", fmt::join(values, "/"));
}

std::vector<std::int32_t> to_i32(std::span<const TokenId> ids) {
    return {ids.begin(), ids.end()};
}

/// A head being fitted. Its student trains the weights in place, so the object must not move.
struct HeadBeingFitted {
    std::unique_ptr<const ApproximationTarget> target;
    LowRankWeights factors;  ///< for slimspec and specvocab
    Dense rows;              ///< for a trimmed head
    std::vector<int> ranks;
    std::unique_ptr<Student> student;

    Report evaluate(kernels::Exec& exec, const Samples& samples) {
        return evaluate_head(exec, samples, target->teacher, *student, target->ids);
    }
};

void note_stage(const char* stage, const Report& report, Report& notes) {
    for (const char* name : {"kl", "kl_drafter"})
        if (const auto found = report.find(name); found != report.end())
            notes[fmt::format("{}_{}", name, stage)] = found->second;
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
    const std::size_t k = samples.drafted.topk;
    for (const int row : samples.drafted.indices(false))
        for (std::size_t c = 0; c < k; ++c)
            count(samples.drafted.top[numel(row, k) + c], 1.0 / static_cast<double>(k));
    const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
    const double floor = 0.2 * std::max(total, 1.0) / support;
    for (double& value : counts) value += floor;
    return counts;
}

/// Computes the closed form of a low-rank head and reports that of the plain SVD. Of the forms with equal and
/// with counted token importance, the better one on held-out text is the start (our default).
Result<std::unique_ptr<HeadBeingFitted>> start_low_rank(const FitInputs& in, const FitOptions& options,
                                                        const Samples& samples, Report& notes) {
    auto fitting = std::make_unique<HeadBeingFitted>();
    fitting->target = make_full_target(in);
    const Teacher& teacher = fitting->target->teacher;
    std::vector<int>& ranks = fitting->ranks;
    ranks = options.ranks;
    if (ranks.empty()) ranks = {std::max(1, in.weights.hidden / 8)};
    if (options.per_level && ranks.size() == 1) ranks.assign(samples.levels, ranks.front());
    const Dense rows = unpack_rows(*teacher.drafter_rows, teacher.support);
    const auto start_from = [&](const std::vector<double>& moment,
                                std::span<const double> importance) -> Status {
        DS_ASSIGN(fitting->factors, low_rank_factors(in.exec, rows.view(), moment, ranks, importance));
        fitting->student = make_low_rank_student(fitting->factors);
        return {};
    };
    DS_TRY(start_from(identity_moment(in.weights.hidden), {}));
    note_stage("plain_svd", fitting->evaluate(in.exec, samples), notes);
    const std::vector<double> moment = second_moment(in.exec, samples);
    DS_TRY(start_from(moment, {}));
    note_stage("closed_form", fitting->evaluate(in.exec, samples), notes);
    DS_TRY(start_from(moment, token_importance(samples, fitting->target->ids, teacher.support)));
    note_stage("weighted_form", fitting->evaluate(in.exec, samples), notes);
    if (notes["kl_weighted_form"] > notes["kl_closed_form"]) DS_TRY(start_from(moment, {}));
    return fitting;
}

/// The tokens that are always active and the first ones of the ranking that the drafter's head contains,
/// ascending.
Result<std::vector<TokenId>> select_tokens(const FitInputs& in, int size) {
    if (static_cast<int>(in.ranking.size()) < size)
        return bad_input("v={}, but the ranking has only {} tokens", size, in.ranking.size());
    std::vector<bool> kept(in.weights.vocab);
    int count = 0;
    const auto keep = [&](TokenId id) {
        if (count == size || !lm_head_has(in.weights, id) || kept[id]) return;
        kept[id] = true;
        ++count;
    };
    for (const TokenId id : in.weights.always_active) keep(id);
    for (const TokenId id : in.ranking) keep(id);
    if (count < size)
        return bad_input("v={}, but the drafter's head has only {} tokens of the ranking", size, count);
    std::vector<TokenId> ids;
    for (std::size_t id = 0; id < kept.size(); ++id)
        if (kept[id]) ids.push_back(static_cast<TokenId>(id));
    return ids;
}

/// Starts from the kept rows of the LM head.
Result<std::unique_ptr<HeadBeingFitted>> start_trimmed(const FitInputs& in, const FitOptions& options,
                                                       const Samples& samples, Report& notes) {
    const int size = options.v > 0 ? options.v : std::max(1, in.weights.vocab / 4 / 64 * 64);
    DS_ASSIGN(std::vector<TokenId> ids, select_tokens(in, size));
    auto fitting = std::make_unique<HeadBeingFitted>();
    fitting->target = make_trimmed_target(in, std::move(ids));
    fitting->rows = unpack_rows(fitting->target->drafter_part, fitting->target->teacher.support);
    fitting->student = make_dense_student(fitting->rows);
    note_stage("untrained", fitting->evaluate(in.exec, samples), notes);
    return fitting;
}

/// Returns the head's recipe; an unknown head has none.
FitRecipe fit_recipe(const FitOptions& options) {
    const HeadInfo* info = find_head_or_suffix(options.head);
    return info == nullptr ? FitRecipe() : info->fit;
}

/// Checks sizes before the drafter runs for minutes.
Status check_sizes(const FitInputs& in, const FitOptions& options) {
    if (fit_recipe(options).fits_low_rank()) {
        for (const int rank : options.ranks)
            if (rank < 1 || rank > in.weights.hidden)
                return bad_input("rank={} does not fit a head of {} inputs; use 1..{}", rank,
                                 in.weights.hidden, in.weights.hidden);
        return {};
    }
    if (options.v < 0 || options.v > in.weights.vocab)
        return bad_input("v={} does not fit the target, which has {} tokens", options.v, in.weights.vocab);
    return {};
}

Result<std::unique_ptr<HeadBeingFitted>> start_head(const FitInputs& in, const FitOptions& options,
                                                    const Samples& samples, Report& notes,
                                                    const Hooks& hooks) {
    DS_TRY(hooks.check());
    hooks.report(-1, "closed form");
    return fit_recipe(options).fits_low_rank() ? start_low_rank(in, options, samples, notes)
                                               : start_trimmed(in, options, samples, notes);
}

void note_training(const KlReport& trained, Report& notes) {
    notes["steps"] = trained.steps;
    notes["loss_before"] = trained.kl_before;
    notes["loss_after"] = trained.kl_after;
    notes["best_epoch"] = trained.best_epoch;
}

/// Rounds the weights to the precision of the file, evaluates them, and creates the tensors.
void finish_head(const FitInputs& in, const FitOptions& options, const Samples& samples,
                 HeadBeingFitted& fitting, FittedHead& result) {
    for (Dense& down : fitting.factors.down) round_to_f16(down.values());
    Dense& large = fit_recipe(options).fits_low_rank() ? fitting.factors.up : fitting.rows;
    round_to_stored(large, options.int8);
    const auto store = [&](std::string_view name) {
        if (!options.int8) return result.tensors.push_back(f16_tensor(std::string(name), large));
        for (FittedTensor& tensor : int8_tensors(std::string(name), large))
            result.tensors.push_back(std::move(tensor));
    };
    result.report = fitting.evaluate(in.exec, samples);
    const std::vector<TokenId>& ids = fitting.target->ids;
    if (!ids.empty()) {
        result.tensors.push_back(integer_tensor("ids", {static_cast<std::int64_t>(ids.size())}, to_i32(ids)));
    }
    if (!fit_recipe(options).fits_low_rank()) {
        store("weight");
        result.parameters["v"] = std::to_string(fitting.rows.rows);
        return;
    }
    const LowRankWeights& factors = fitting.factors;
    const bool one = factors.down.size() == 1;
    for (std::size_t l = 0; l < factors.down.size(); ++l)
        result.tensors.push_back(f16_tensor(one ? "down" : fmt::format("down.{}", l), factors.down[l]));
    store(fit_recipe(options).up);
    result.parameters["rank"] = join_values(fitting.ranks);
}

/// Fits SlimSpec, SpecVocab, VocabTrim-T and BCL: closed form or the LM head's own rows, then forward KL,
/// with p renormalised on a trimmed support. Post-hoc, drafter and exact head are fixed, so SpecVocab's joint
/// loss L(p, q) + lambda L(p, q_aux) leaves L(p, q_aux). Lambda then scales a gradient that Adam normalises,
/// so SlimSpec's and SpecVocab's factors come from the same fit.
Result<FittedHead> fit_by_divergence(const FitInputs& in, const FitOptions& options, const Hooks& hooks) {
    DS_TRY(check_sizes(in, options));
    DS_ASSIGN(const Samples samples, collect(in, options.collect, hooks));
    FittedHead result;
    note_samples(samples, result.notes);
    DS_ASSIGN(const auto fitting, start_head(in, options, samples, result.notes, hooks));
    if (options.train) {
        DS_ASSIGN(const KlReport trained,
                  train_kl(in.exec, samples, fitting->target->teacher, *fitting->student, options.kl, hooks));
        note_training(trained, result.notes);
    }
    finish_head(in, options, samples, *fitting, result);
    if (fit_recipe(options).solves_size()) result.parameters["alpha"] = fmt::format("{}", options.alpha);
    return result;
}

void store_router(const RouterWeights& router, FittedHead& result) {
    result.tensors.push_back(f16_tensor("router.in.weight", router.in));
    result.tensors.push_back(f16_tensor("router.in.bias", router.in_bias));
    result.tensors.push_back(f16_tensor("router.out.weight", router.out));
    result.tensors.push_back(f16_tensor("router.out.bias", router.out_bias));
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
Result<FittedHead> fit_routed(const FitInputs& in, const FitOptions& options, const Hooks& hooks) {
    const bool clustered = fit_recipe(options).fits_clusters();
    CollectOptions collect_options = options.collect;
    collect_options.router_inputs = clustered;
    DS_ASSIGN(const Samples samples, collect(in, collect_options, hooks));
    FittedHead result;
    note_samples(samples, result.notes);
    const int groups = clustered ? options.clusters : options.groups;
    KmeansOptions kmeans;
    kmeans.clusters = groups;
    kmeans.seed = options.router.seed;
    const Dense rows = rows_by_token(in);
    DS_ASSIGN(const Clusters clusters, spherical_kmeans(in.exec, rows.view(), kmeans, hooks));
    std::vector<std::int32_t> group_of = clusters.cluster_of;
    if (!clustered) {
        if (static_cast<int>(in.ranking.size()) != in.weights.vocab)
            return bad_input("{}: the ranking has {} tokens, but the target has {}", options.head,
                             in.ranking.size(), in.weights.vocab);
        group_of = balanced_groups(in.exec, rows.view(), clusters, to_i32(in.ranking));
    }
    const RouterInput input = clustered ? RouterInput::embedding_and_parent : RouterInput::hidden;
    RouterOptions router_options = options.router;
    if (!clustered) router_options.width = in.weights.hidden;  // one d x d layer
    RouterReport trained;
    DS_ASSIGN(RouterWeights router, train_router(in.exec, samples.drafted, input, group_of, groups,
                                                 router_options, hooks, trained));
    result.notes["clusters_spread"] = clusters.objective.back();
    result.notes["steps"] = trained.steps;
    result.notes["bce_before"] = trained.bce_before;
    result.notes["bce_after"] = trained.bce_after;
    for (Dense* weights : {&router.in, &router.out}) round_to_f16(weights->values());
    const int chosen = std::max(1, (groups + 3) / 4);  // the heads' default budget
    result.report =
        evaluate_router(in.exec, samples, router, input, group_of, chosen, in.weights.always_active);
    result.report["chosen"] = chosen;
    result.tensors.push_back(integer_tensor(clustered ? "clusters" : "groups", {in.weights.vocab}, group_of));
    store_router(router, result);
    result.parameters[clustered ? "clusters" : "groups"] = std::to_string(groups);
    if (clustered) result.parameters["r"] = std::to_string(router_options.width);
    return result;
}

Result<FittedHead> fit_affinity(const FitInputs& in, const FitOptions& options, const Hooks& hooks) {
    const auto target = make_full_target(in);
    const std::vector<TokenId>& ids = target->ids;
    const Dense rows = unpack_rows(*target->teacher.drafter_rows, target->teacher.support);
    DS_ASSIGN(AffinityMatrix affinity, token_affinity(in.exec, rows.view(), options.affinity, hooks));
    if (!ids.empty()) {
        for (std::int32_t& neighbour : affinity.neighbours) neighbour = ids[neighbour];
    }
    FittedHead result;
    const std::vector<std::int64_t> shape{rows.rows, affinity.width};
    result.tensors.push_back(integer_tensor("neighbours", shape, affinity.neighbours));
    FittedTensor weights = f16_tensor("weights", affinity.weights);
    weights.shape = shape;
    result.tensors.push_back(std::move(weights));
    if (!ids.empty()) {
        result.tensors.push_back(integer_tensor("ids", {static_cast<std::int64_t>(ids.size())}, to_i32(ids)));
    }
    result.parameters["neighbours"] = std::to_string(affinity.width);
    return result;
}

}  // namespace

FittedTensor f16_tensor(std::string name, const Dense& values) {
    return make_f16_tensor(std::move(name), {values.rows, values.cols}, values.values());
}

FittedTensor f16_tensor(std::string name, std::span<const float> values) {
    return make_f16_tensor(std::move(name), {static_cast<std::int64_t>(values.size())}, values);
}

std::vector<FittedTensor> int8_tensors(const std::string& name, const Dense& values) {
    const Int8Matrix stored = to_int8(values);
    std::vector<FittedTensor> tensors;
    tensors.push_back({name, "I8", {values.rows, values.cols}, to_bytes<std::int8_t>(stored.values)});
    tensors.push_back(make_f16_tensor(name + ".scales", {values.rows, stored.groups}, stored.scales));
    return tensors;
}

FittedTensor integer_tensor(std::string name, std::vector<std::int64_t> shape,
                            std::span<const std::int32_t> values) {
    if (all_below(values, 1 << 8))
        return {std::move(name), "U8", std::move(shape), to_bytes_as<std::uint8_t>(values)};
    if (all_below(values, 1 << 16))
        return {std::move(name), "U16", std::move(shape), to_bytes_as<std::uint16_t>(values)};
    return {std::move(name), "I32", std::move(shape), to_bytes(values)};
}

Result<FittedHead> fit_head(const FitInputs& inputs, const FitOptions& options, const Hooks& hooks) {
    switch (fit_recipe(options).weights) {
        case FitRecipe::Weights::low_rank:
        case FitRecipe::Weights::kept_rows:
            return fit_by_divergence(inputs, options, hooks);
        case FitRecipe::Weights::clusters:
        case FitRecipe::Weights::groups:
            return fit_routed(inputs, options, hooks);
        case FitRecipe::Weights::affinity:
            return fit_affinity(inputs, options, hooks);
        case FitRecipe::Weights::none:
            break;
    }
    return bad_input("head {}: nothing to fit", options.head);
}

Result<FittedHead> fit_joint(const FitInputs& inputs, const FitOptions& options, const JointFit& joint,
                             const Hooks& hooks) {
    if (!fit_recipe(options).trains_by_divergence())
        return bad_input("head {}: --joint trains only {}", options.head,
                         fmt::join(heads_fitted_by(&FitRecipe::trains_by_divergence), ", "));
    DS_TRY(check_sizes(inputs, options));
    FittedHead result;
    std::unique_ptr<HeadBeingFitted> fitting;
    {
        DS_ASSIGN(const Samples before, collect(inputs, options.collect, hooks));
        DS_ASSIGN(fitting, start_head(inputs, options, before, result.notes, hooks));
    }
    DS_ASSIGN(const KlReport trained,
              train_joint(inputs.exec, joint.drafter, joint.target, fitting->target->teacher,
                          *fitting->student, *inputs.texts, joint.options, hooks));
    note_training(trained, result.notes);
    // Evaluates the head as it will run: with the trained drafter, loaded from its file.
    DS_ASSIGN(const std::unique_ptr<Drafter> drafter, joint.reload(checkpoint_tensors(joint.drafter)));
    FitInputs after = inputs;
    after.drafter = drafter.get();
    DS_ASSIGN(const Samples samples, collect(after, options.collect, hooks));
    note_samples(samples, result.notes);
    finish_head(after, options, samples, *fitting, result);
    if (fit_recipe(options).solves_size()) result.parameters["alpha"] = fmt::format("{}", options.alpha);
    return result;
}

}  // namespace draftscope::fit
