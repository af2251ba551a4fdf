#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/device_rig.h"
#include "tests/support/fake_cuda/fake_gpu.h"
#include "tests/support/round_fixture.h"

/// Rounds on a device: what the golden rounds do not say. Each takes one wait, and watching it changes
/// nothing.
namespace draftscope::testing {
namespace {

/// "kernels": the CUDA back end on a GPU that is none, whose streams run in random order.
TwinExec exec_of(const std::string& kind) {
    if (kind != "kernels") return TwinExec(kind);
    set_fake_gpu({.thread_order = 2, .schedule = FakeSchedule::random});
    return TwinExec(*open_fake_cuda());
}

/// A device with a RoundFixture on it. `kind` is that of TwinExec, or "kernels".
class DeviceFixture {
  public:
    explicit DeviceFixture(const std::string& kind)
        : on_(exec_of(kind)), rounds_(*on_.exec, kernels::Precision::bf16), fixture_(&rounds_.engine()) {}
    std::vector<StepRecord> steps(const DecodeCase& setting) { return rounds_.steps(setting, prompts_); }
    /// The same with a gate that stops at every phase.
    std::vector<StepRecord> watched_steps(const DecodeCase& setting);
    void set_prompts(std::vector<std::vector<TokenId>> prompts) { prompts_ = std::move(prompts); }
    /// Compares every node.
    void expect_same(const std::vector<StepRecord>& found, const std::vector<StepRecord>& expected,
                     double tolerance = 0);
    int nodes() const { return nodes_; }  ///< drafts compared
    kernels::BackendStats device_stats() const { return on_.exec->stats(); }

  protected:
    TwinExec on_;
    RoundFixture rounds_;
    DecodeFixture* fixture_;
    int nodes_ = 0, accepted_ = 0;
    std::vector<std::vector<TokenId>> prompts_ = prompts();
};

/// `tolerance` is that of probabilities; 0 = the same bits.
void expect_same_round(const RoundRecord& found, const RoundRecord& expected, double tolerance = 0) {
    const auto near = [&](double a, double b) { EXPECT_NEAR(a, b, tolerance); };
    EXPECT_EQ(found.round.accepted, expected.round.accepted);
    EXPECT_EQ(found.round.committed, expected.round.committed);
    EXPECT_EQ(found.round.tree_depth, expected.round.tree_depth);
    ASSERT_EQ(found.nodes.size(), expected.nodes.size());
    for (std::size_t n = 0; n < found.nodes.size(); ++n) {
        const NodeRow &a = found.nodes[n], &b = expected.nodes[n];
        EXPECT_EQ(a.token_id, b.token_id);
        EXPECT_EQ(a.parent, b.parent);
        near(static_cast<double>(a.draft_logprob), static_cast<double>(b.draft_logprob));
        EXPECT_EQ(a.accepted, b.accepted);
        EXPECT_EQ(a.target_token_id, b.target_token_id);
        near(static_cast<double>(a.target_prob.value_or(0)), static_cast<double>(b.target_prob.value_or(0)));
        EXPECT_EQ(a.target_rank, b.target_rank);
        EXPECT_EQ(a.target_covered, b.target_covered);
        EXPECT_EQ(a.target_draft_rank, b.target_draft_rank);
        near(static_cast<double>(a.target_draft_logprob.value_or(1)),
             static_cast<double>(b.target_draft_logprob.value_or(1)));
    }
    ASSERT_EQ(found.tops.size(), expected.tops.size());
    for (std::size_t t = 0; t < found.tops.size(); ++t)
        EXPECT_EQ(found.tops[t].token_id, expected.tops[t].token_id);
    ASSERT_EQ(found.head_evals.size(), expected.head_evals.size());
    for (std::size_t h = 0; h < found.head_evals.size(); ++h) {
        near(found.head_evals[h].covered_mass.value_or(-1), expected.head_evals[h].covered_mass.value_or(-1));
        EXPECT_EQ(found.head_evals[h].active_rows, expected.head_evals[h].active_rows);
    }
}

std::vector<StepRecord> DeviceFixture::watched_steps(const DecodeCase& setting) {
    DebugGate& gate = fixture_->gate();
    gate.pause();
    std::atomic<bool> done = false;
    std::thread stepper([&] {
        while (!done) {
            gate.step(StepGranularity::phase);
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        gate.resume();
    });
    std::vector<StepRecord> found = steps(setting);
    done = true;
    stepper.join();
    gate.reset();
    return found;
}

void DeviceFixture::expect_same(const std::vector<StepRecord>& found, const std::vector<StepRecord>& expected,
                                double tolerance) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) {
        ASSERT_EQ(found[s].rounds.size(), expected[s].rounds.size());
        for (std::size_t r = 0; r < found[s].rounds.size(); ++r) {
            expect_same_round(found[s].rounds[r], expected[s].rounds[r], tolerance);
            nodes_ += found[s].rounds[r].round.draft_tokens;
            accepted_ += found[s].rounds[r].round.accepted;
        }
    }
}

/// Runs a test on each device, and skips it where the device does not open.
template <typename Param>
class OnDevice : public DeviceFixture, public ::testing::TestWithParam<Param> {
  protected:
    explicit OnDevice(const std::string& kind) : DeviceFixture(kind) {}
    void SetUp() override {
        if (!on_.why_not.empty()) GTEST_SKIP() << on_.why_not;
    }
};

using DeviceGroup = std::tuple<std::string, CaseGroup>;

class DeviceRounds : public OnDevice<DeviceGroup> {
  protected:
    DeviceRounds() : OnDevice(std::get<0>(GetParam())) {}
};

TEST_P(DeviceRounds, AreTheSameWhenWatched) {
    const CaseGroup& group = std::get<1>(GetParam());
    const int count = static_cast<int>(group.cases.size());
    for (const DecodeCase& setting : group.cases) {
        SCOPED_TRACE(to_text(setting));
        const auto expected = steps(setting);
        expect_same(watched_steps(setting), expected);
        if (HasFatalFailure()) return;
    }
    EXPECT_GT(nodes_, 30 * count);
    EXPECT_GT(accepted_, count);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceRounds,
                         ::testing::Combine(engine_device_kinds(), ::testing::ValuesIn(all_groups())),
                         [](const ::testing::TestParamInfo<DeviceGroup>& instance) {
                             return std::get<0>(instance.param) + "_" + std::get<1>(instance.param).name;
                         });

/// The kernels and the host code that launches them, with graphs, against the reference of every op.
class KernelRounds : public ::testing::TestWithParam<CaseGroup> {};

TEST_P(KernelRounds, MatchTheReference) {
    DeviceFixture kernels("kernels"), reference("twin");
    for (DeviceFixture* fixture : {&kernels, &reference})
        fixture->set_prompts({{5, 1, 2, 8}, {3, 9, 4, 0, 7}});
    for (const DecodeCase& setting : GetParam().cases) {
        SCOPED_TRACE(to_text(setting));
        // Sums in floats, and in doubles.
        kernels.expect_same(kernels.steps(setting), reference.steps(setting), 2e-3);
        if (HasFatalFailure()) return;
    }
    EXPECT_GT(kernels.nodes(), 8);
    EXPECT_GT(fake_gpu_use().graph_launches, 0);
    EXPECT_EQ(kernels.device_stats().graphs_failed, 0) << kernels.device_stats().graph_error;
    EXPECT_TRUE(fake_gpu_use().faults.empty());
}

INSTANTIATE_TEST_SUITE_P(Groups, KernelRounds, ::testing::ValuesIn(kernel_groups()),
                         [](const ::testing::TestParamInfo<CaseGroup>& instance) {
                             return instance.param.name;
                         });

class DeviceRoundDetails : public OnDevice<std::string> {
  protected:
    DeviceRoundDetails() : OnDevice(GetParam()) {}
};

/// Rules that read distributions get them from the device's logits. The reference is an engine without a
/// device, whose logits differ by fp16's rounding: a few random numbers fall between the two.
TEST_P(DeviceRoundDetails, RulesMatchTheHosts) {
    const std::map<std::string, std::string> drafters = {{"eagle2", rounds_.eagle2_folder()}};
    TwinExec on = exec_of(GetParam());
    on.exec->set_dtype(kernels::Float16Kind::f16);
    DecodeFixture on_device(DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get()), drafters,
                            rounds_.ranking_path());
    on_device.run_on(*on.exec);
    DecodeFixture host(DecodeFixture::build(tiny(), kernels::Precision::f32), drafters,
                       rounds_.ranking_path());
    int texts = 0, same = 0, accepted = 0;
    for (const char* drafter : {"eagle2", "ngram"})
        for (const char* verify : {"match", "typical", "typical:epsilon=0.3,delta=0.9", "pq"})
            for (const double top_p : {1.0, 0.8}) {
                const DecodeCase setting = {.drafter = drafter,
                                            .temperature = 0.9,
                                            .batch = 3,
                                            .verify = verify,
                                            .max_new = 10,
                                            .top_p = top_p};
                SCOPED_TRACE(to_text(setting));
                RecordList list;
                const auto found = on_device.decode(setting, prompts_, &list),
                           expected = host.decode(setting, prompts_);
                ASSERT_EQ(found.size(), expected.size());
                for (std::size_t i = 0; i < found.size(); ++i) {
                    ++texts;
                    same += found[i].tokens == expected[i].tokens;
                }
                for (const StepRecord& step : RecordList::of<StepRecord>(list.take()))
                    for (const RoundRecord& round : step.rounds) accepted += round.round.accepted;
            }
    EXPECT_GE(texts, 48);
    EXPECT_GE(same, texts * 9 / 10);
    EXPECT_GT(accepted, 20);
}

/// Returns whether a phase has spans in the steps.
bool has_phase(const std::vector<StepRecord>& steps, Phase phase) {
    const auto is_phase = [&](const SpanRow& span) { return span.phase_id == static_cast<int>(phase); };
    return std::ranges::any_of(
        steps, [&](const StepRecord& step) { return std::ranges::any_of(step.spans, is_phase); });
}

/// `softmax=separate` selects from logits whose sums an op before has computed. The drafts are those of the
/// fused op, on the reference and with the kernels.
TEST(DeviceSoftmax, SeparateStepsDraftTheSame) {
    for (const char* kind : {"twin", "kernels"}) {
        DeviceFixture device(kind);
        device.set_prompts({{5, 1, 2, 8}, {3, 9, 4, 0, 7}});
        std::vector<DecodeCase> cases = {greedy("eagle2", linear_heads[1], chain)};
        if (kind == std::string("twin")) cases.push_back(sampled("eagle3", linear_heads[0], wide));
        for (DecodeCase setting : cases) {
            SCOPED_TRACE(fmt::format("{} {}", kind, to_text(setting)));
            setting.acceptance = "real";
            setting.max_new = 4;
            const auto expected = device.steps(setting);
            setting.head += setting.head.find(':') == std::string::npos ? ":" : ",";
            setting.head += "softmax=separate";
            const auto found = device.steps(setting);
            device.expect_same(found, expected, 1e-5);
            EXPECT_FALSE(has_phase(expected, Phase::softmax));
            EXPECT_TRUE(has_phase(found, Phase::softmax) && has_phase(found, Phase::topk));
        }
        EXPECT_GT(device.nodes(), 8);
        EXPECT_EQ(device.device_stats().graphs_failed, 0) << device.device_stats().graph_error;
    }
    EXPECT_TRUE(fake_gpu_use().faults.empty());
}

/// A drafter with the kind of drafts that its waits are counted for.
struct WaitCase {
    std::string drafter;
    bool own_heads = false;  ///< drafts with its own LM heads
    enum class Mode { greedy, sampled, rejection } alone = Mode::greedy, batched = Mode::greedy;
};

void PrintTo(const WaitCase& one, std::ostream* out) {
    *out << one.drafter;
}

std::vector<WaitCase> wait_cases() {
    using Mode = WaitCase::Mode;
    return {
        {.drafter = "eagle2", .batched = Mode::rejection},
        {.drafter = "eagle3", .alone = Mode::sampled, .batched = Mode::sampled},
        {.drafter = "eagle3_normed", .own_heads = true, .alone = Mode::sampled, .batched = Mode::sampled},
        {.drafter = "medusa", .batched = Mode::rejection},
        {.drafter = "hydra", .alone = Mode::rejection, .batched = Mode::rejection},
        {.drafter = "medusa_whole", .own_heads = true, .alone = Mode::rejection, .batched = Mode::rejection},
        {.drafter = "hydra_whole", .own_heads = true, .alone = Mode::rejection, .batched = Mode::rejection}};
}

using DeviceWait = std::tuple<std::string, WaitCase>;

class DeviceWaits : public OnDevice<DeviceWait> {
  protected:
    DeviceWaits() : OnDevice(std::get<0>(GetParam())) {}

    /// Returns the steps and waits of a text of `max_new` tokens.
    std::pair<int, int> count(DecodeCase setting, int max_new) {
        setting.max_new = max_new;
        const int before = on_.twin->finishes();
        const int steps_made = static_cast<int>(steps(setting).size());
        return {steps_made, on_.twin->finishes() - before};
    }
    void expect_one_wait(const DecodeCase& setting) {
        SCOPED_TRACE(to_text(setting));
        prompts_ = {{5, 1, 2, 9, 7, 0, 3, 11}, {4, 8, 1, 12, 6, 10}, {2, 3, 5, 7, 11, 1}};
        prompts_.resize(setting.batch);
        // Prompts cost the same for texts of any length. The first run also makes the head.
        (void)count(setting, 1);
        const auto [short_steps, short_waits] = count(setting, 4);
        const auto [long_steps, long_waits] = count(setting, 24);
        ASSERT_GT(long_steps, short_steps + 3);
        EXPECT_EQ(long_waits - short_waits, long_steps - short_steps);
    }
};

/// One wait for each step, of one sequence and of several.
TEST_P(DeviceWaits, WaitOnce) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts waits";
    const WaitCase& one = std::get<1>(GetParam());
    std::vector<HeadCase> heads = {linear_heads[1]};
    heads.insert(heads.end(), shortlist_heads.begin(), shortlist_heads.end());
    heads.insert(heads.end(), rdk_heads.begin(), rdk_heads.end());
    if (one.own_heads) heads = {linear_heads[1], rdk_heads[0], rdk_heads[1]};
    for (HeadCase head : heads) {
        head.calibration_rounds = 0;  // these wait for the second draft
        head.acceptance = "real";
        for (const int batch : {1, 3}) {
            const bool coral = head.head.starts_with("coral");
            const TreeCase tree = {.tree = batch == 3 && coral ? fixed.tree : wide.tree, .batch = batch};
            const WaitCase::Mode mode = batch == 1 ? one.alone : one.batched;
            DecodeCase setting = greedy(one.drafter, head, tree);
            if (mode == WaitCase::Mode::rejection) setting = rejection(one.drafter, head, tree, all_tokens);
            if (mode == WaitCase::Mode::sampled) {
                setting = sampled(one.drafter, head, tree);
                setting.temperature = 0.9;
                setting.top_p = 0.7;
                setting.top_k = 9;
            }
            expect_one_wait(setting);
            if (HasFatalFailure()) return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceWaits,
                         ::testing::Combine(engine_device_kinds(), ::testing::ValuesIn(wait_cases())),
                         [](const ::testing::TestParamInfo<DeviceWait>& instance) {
                             return std::get<0>(instance.param) + "_" + std::get<1>(instance.param).drafter;
                         });

/// The tokens that rows could propose, and those that they did, are downloaded with each step if a recorder
/// needs them. The text is the same.
TEST_P(DeviceRoundDetails, SetsAndCandidatesAreDownloadedForARecorder) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts downloads";
    DecodeCase setting;
    setting.head = "specvocab:k=5";
    setting.tree = wide.tree;
    setting.max_new = 12;
    prompts_ = {{5, 1, 2, 9, 7, 0, 3, 11}};
    (void)fixture_->decode(setting, prompts_);  // makes the head
    RecordList list;
    int downloads[2];
    std::vector<TokenId> texts[2];
    for (int i = 0; i < 2; ++i) {
        const int before = on_.twin->downloads();
        texts[i] = fixture_->decode(setting, prompts_, i == 0 ? nullptr : &list)[0].tokens;
        downloads[i] = on_.twin->downloads() - before;
    }
    EXPECT_EQ(texts[0], texts[1]);
    ASSERT_GT(fixture_->totals().steps, 1);
    EXPECT_EQ(downloads[1] - downloads[0], 2 * fixture_->totals().steps);
}

/// A pass uploads where its rows are, and nothing that did not change since the pass before: an upload
/// between two passes costs a device as much as a small kernel.
TEST_P(DeviceRoundDetails, APassUploadsItsPlacesAlone) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts uploads";
    DecodeCase setting;
    setting.head = "full";
    setting.tree = chain.tree;
    prompts_ = {{5, 1, 2, 9, 7, 0, 3, 11}};
    int steps_made[2], uploads[2];
    for (int i = 0; i < 2; ++i) {
        setting.max_new = i == 0 ? 6 : 24;
        (void)fixture_->decode(setting, prompts_);  // makes the head
        const int before = on_.twin->uploads();
        (void)fixture_->decode(setting, prompts_);
        uploads[i] = on_.twin->uploads() - before;
        steps_made[i] = static_cast<int>(fixture_->totals().steps);
    }
    ASSERT_GT(steps_made[1], steps_made[0]);
    // However deep the tree: the layouts of the drafter's passes, the catch-up's tokens, the target's layout.
    // A text whose caches are where those of the text before were, which is chance, uploads their addresses
    // less often.
    EXPECT_NEAR(uploads[1] - uploads[0], 3 * (steps_made[1] - steps_made[0]), 4);
}

/// The tokens that a set redistributes to are found only if a recorder needs the coverage.
TEST_P(DeviceRoundDetails, RedistributedSetsAreFoundForARecorder) {
    if (on_.twin == nullptr) GTEST_SKIP() << "the twin counts ops";
    for (const char* head : {"specvocab:k=5+rdk", "dynaspec:kmax=4,kmin=3+rdk"}) {
        DecodeCase setting;
        setting.head = head;
        setting.tree = wide.tree;
        setting.temperature = 0.9;
        setting.verify = "pq";
        setting.max_new = 7;
        prompts_ = {{5, 1, 2, 9, 7, 0, 3, 11}};
        const int before = on_.twin->reaches();
        (void)fixture_->decode(setting, prompts_);
        EXPECT_EQ(on_.twin->reaches(), before) << head;
        EXPECT_GT(steps(setting).size(), 1u);
        EXPECT_GT(on_.twin->reaches(), before) << head;
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceRoundDetails, engine_device_kinds(), kind_of);

}  // namespace
}  // namespace draftscope::testing
