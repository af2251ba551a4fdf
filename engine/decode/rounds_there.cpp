#include "engine/decode/rounds_there.h"

#include <mutex>

#include "base/numel.h"
#include "kernels/elementwise.h"

namespace draftscope {
namespace {

/// The tree that a pool of this many candidates is re-ranked to.
int nodes_of(const TreeSpec& tree) {
    if (tree.choices) return tree.nodes;
    return std::min(tree.nodes - 1, tree.topk + tree.depth * tree.topk * tree.topk) + 1;
}

}  // namespace

bool RoundsThere::fits(const DraftContext& context, std::span<const DraftJob> jobs,
                       std::span<const Round> rounds) const {
    return core_.options.rounds_there && core_.exec.device() != nullptr && jobs.size() == rounds.size() &&
           core_.options.shadows.empty() && judged_.answers_suffice() &&
           core_.drafter.fits_there(context, jobs);
}

Status RoundsThere::bring_features(std::span<DraftJob> jobs, std::span<const Round> rounds,
                                   std::span<const std::size_t> of) {
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        DraftJob& job = jobs[j];
        if (job.new_there == nullptr) continue;
        Sequence& sequence = *rounds[of[j]].sequence;
        const bool hidden = core_.drafter.needs_hidden();
        std::vector<float>& to = hidden ? sequence.hidden : sequence.aux;
        const int width = core_.feature_width();
        to.resize(numel(sequence.rows_there, width));
        kernels::Device& device = *core_.exec.device();
        {
            const std::lock_guard lock(device.submit_mutex());
            device.download(to.data(), sequence.features_there.as<float>(), to.size() * sizeof(float));
            DS_TRY(device.synchronize());
        }
        const Rows<float> rows(to.data(), sequence.rows_there, width);
        kernels::cast_to_dtype(core_.exec, rows);
        (hidden ? job.new_hidden : job.new_aux) = rows;
        job.new_there = nullptr;
        job.new_rows_there = sequence.rows_there = 0;
    }
    return {};
}

/// All of a step, up to the wait.
Status RoundsThere::ask(DraftContext& context, std::span<DraftJob> jobs, const TreesRequest& request) {
    spans_.begin(core_.exec.device()->timer());
    DS_TRY(core_.drafter.draft_there(context, jobs, step_, spans_));
    {
        DeviceSpans::Scope scope(spans_, core_.phases, Phase::verify, 0, step_.rows(), 0);
        DS_ASSIGN(const std::uint64_t bytes, core_.target.ask_trees(request, step_));
        scope.add_bytes(bytes);
    }
    step_.ask_download();
    return {};
}

Status RoundsThere::run(DraftContext& context, std::span<DraftJob> jobs, std::span<Round> rounds) {
    kernels::Device& device = *core_.exec.device();
    std::vector<TreePlan> plans;
    std::vector<KvCache*> caches;
    int most_drafts = 0;
    for (const DraftJob& job : jobs) most_drafts = std::max(most_drafts, job.tree.topk);
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        plans.push_back({nodes_of(jobs[i].tree), jobs[i].tree.levels(), {}, {}});
        if (context.sampled != nullptr) plans.back().most_drafts = most_drafts;
        caches.push_back(&rounds[i].sequence->cache);
    }
    TreesRequest request;
    request.caches = caches;
    request.aux_layers = core_.drafter.aux_layers();
    request.question = judged_.ask_trees(rounds, plans);
    request.accept = accepted_there_ = judged_.accepts_there();
    {
        const std::lock_guard lock(device.submit_mutex());
        if (!step_.place(device, plans))
            return failed("out of device memory for the step's trees; use a smaller batch or tree");
        const Status asked = ask(context, jobs, request);
        // Also where something was refused: what was asked for before that arrives in our memory.
        const Status finished = device.synchronize();
        DS_TRY(asked);
        DS_TRY(finished);
    }
    core_.drafter.drafted_there();
    spans_.record(core_.phases);
    core_.target.collect_trees(step_, core_.forward);
    PhaseScope scope(core_.phases, Phase::rerank, 0, step_.rows());
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        const auto index = static_cast<int>(i);
        const auto tokens = step_.tokens(index), parents = step_.parents(index);
        const std::vector<float> logprobs = step_.logprobs(index);
        const int first = step_.trees()[i].first_row;
        Round& round = rounds[i];
        round.tree.reset(tokens[0], static_cast<int>(tokens.size()));
        for (std::size_t n = 1; n < tokens.size(); ++n) {
            // What could not be drawn comes last, each its own parent.
            if (context.sampled != nullptr && parents[n] == first + static_cast<int>(n)) break;
            if (parents[n] < first || parents[n] >= first + static_cast<int>(n))
                return failed("the device's draft tree: node {} has no parent before it", n);
            round.tree.add(tokens[n], parents[n] - first, logprobs[n]);
        }
        DS_TRY(round.tree.finish());
        round.sequence->rows_there = 0;
    }
    return {};
}

Status RoundsThere::commit(Round& round, std::size_t index) {
    Sequence& sequence = *round.sequence;
    const std::span<const int> path = round.acceptance.path;
    const auto count = static_cast<int>(path.size());
    if (accepted_there_)
        sequence.cache.commit(count);
    else
        sequence.cache.commit_path(path);
    kernels::Device& device = *core_.exec.device();
    const std::lock_guard lock(device.submit_mutex());
    const int width = core_.feature_width();
    const std::size_t row_bytes = width * sizeof(float);
    if (!sequence.features_there.reserve(device, numel(step_.there().width, row_bytes)))
        return failed("out of device memory for the features of {} slots", count);
    if (!accepted_there_) step_.set_path(static_cast<int>(index), path);
    const float* features = core_.target.features_there(core_.drafter.needs_hidden()) +
                            static_cast<std::ptrdiff_t>(step_.trees()[index].first_row) * width;
    moves_.push_back({features, width, step_.path_there(static_cast<int>(index)), count, width,
                      sequence.features_there.as<float>(), width});
    sequence.rows_there = sequence.new_slots = count;
    sequence.hidden.clear();
    sequence.aux.clear();
    return {};
}

void RoundsThere::end_commits() {
    kernels::Device& device = *core_.exec.device();
    const std::lock_guard lock(device.submit_mutex());
    device.copy_rows(moves_);
    moves_.clear();
}

}  // namespace draftscope
