#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "tests/support/lm_head_fixture.h"

namespace draftscope::testing {
namespace {

/// Algorithm 1 line by line, with the complete stream S. The switches are the interpretations that its text
/// allows.
struct ReferenceMicroSpec {
    int window, prompt_k, verify_k;
    std::string source = "both", branch = "path", gather = "async";
    std::string stream_rule = "all", prompt_rule = "first", bonus = "no", eos = "no";
    std::vector<TokenId> stream = {};

    static std::vector<TokenId> unique(const std::vector<TokenId>& ids) {
        std::vector<TokenId> once;
        for (const TokenId id : ids)
            if (std::find(once.begin(), once.end(), id) == once.end()) once.push_back(id);
        return once;
    }
    void append(const std::vector<TokenId>& ids) {
        for (const TokenId id : ids) {
            const auto now = window_of();
            if (stream_rule == "new" && now.contains(id)) continue;
            stream.push_back(id);
        }
    }
    /// As append(), but no id twice. An id that was active and leaves the window may appear again.
    void append_unique(const std::vector<TokenId>& ids) {
        std::set<TokenId> appended;
        for (const TokenId id : ids) {
            if (appended.contains(id) || (stream_rule == "new" && window_of().contains(id))) continue;
            append({id});
            appended.insert(id);
        }
    }
    static std::vector<TokenId> top(const std::vector<std::vector<TokenId>>& best, int k) {
        std::vector<TokenId> ids;
        for (const auto& row : best) ids.insert(ids.end(), row.begin(), row.begin() + k);
        return ids;
    }
    void prefill(const std::vector<TokenId>& prompt, const std::vector<std::vector<TokenId>>& best) {
        stream.clear();
        if (source == "ext") return;
        if (prompt_rule == "first") append(prompt);
        append_unique(top(best, prompt_k));
        if (prompt_rule == "last") append(prompt);
    }
    /// `best`: at every node if the branch is "tree", else along the path.
    void round(const std::vector<TokenId>& tree, std::vector<std::vector<TokenId>> best, TokenId last) {
        if (source == "ctx") return;
        append_unique(tree);
        if (branch == "last") best = {best.back()};
        append_unique(top(best, verify_k));
        if (bonus == "yes") append({last});
    }
    std::set<TokenId> window_of() const {
        const auto length = static_cast<std::ptrdiff_t>(stream.size());
        return {stream.end() - std::min<std::ptrdiff_t>(length, window), stream.end()};
    }
    std::vector<TokenId> active() const {
        std::set<TokenId> ids = window_of();
        if (eos == "yes") ids.insert({0, 2});
        // The full head drafts while the set is empty.
        for (TokenId id = 0; source == "ext" && stream.empty() && id < LmHeadFixture::vocab; ++id)
            ids.insert(id);
        return {ids.begin(), ids.end()};
    }
    std::string spec() const {
        std::string text = fmt::format("microspec:wmax={},source={},gather={},stream={},eos={}", window,
                                       source, gather, stream_rule, eos);
        // Parameters of a source that is switched off are left out.
        if (source != "ext") text += fmt::format(",kpre={},prompt={}", prompt_k, prompt_rule);
        if (source != "ctx") text += fmt::format(",kver={},branch={},bonus={}", verify_k, branch, bonus);
        return text;
    }
};

std::vector<TokenId> random_ids(Rng& rng, int count) {
    std::vector<TokenId> ids;
    for (int i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(rng.below(LmHeadFixture::vocab)));
    return ids;
}

/// Returns `count` rows of k distinct ids, and the same ids concatenated.
std::pair<std::vector<std::vector<TokenId>>, std::vector<TokenId>> random_best(Rng& rng, int count, int k) {
    std::vector<std::vector<TokenId>> best;
    std::vector<TokenId> flat;
    for (int r = 0; r < count; ++r) {
        std::vector<TokenId> row;
        while (static_cast<int>(row.size()) < k) row = ReferenceMicroSpec::unique(random_ids(rng, 2 * k));
        row.resize(k);
        flat.insert(flat.end(), row.begin(), row.end());
        best.push_back(std::move(row));
    }
    return {best, flat};
}

class MicroSpec : public LmHeadFixture {
  protected:
    void begin(LmHead& head, HeadState* state) { begin_round(head, {state}); }
    Proposal call_head(LmHead& head, HeadState* state, int level, int k) {
        return propose(head, level, k, std::vector<HeadState*>(rows, state));
    }
    std::uint64_t gathered() const {
        std::uint64_t bytes = 0;
        for (const SpanEvent& event : events_)
            if (event.phase == Phase::gather) bytes += event.bytes;
        return bytes;
    }
};

class MicroSpecStream : public MicroSpec, public ::testing::WithParamInterface<ReferenceMicroSpec> {};

TEST_P(MicroSpecStream, FollowsAlgorithm1OnRandomStreams) {
    const auto head = make(GetParam().spec());
    const auto logits = dense();
    ReferenceMicroSpec expected = GetParam();
    EXPECT_EQ(head->target_tokens().at_prompt, expected.source == "ext" ? 0 : expected.prompt_k);
    EXPECT_EQ(head->target_tokens().at_verified, expected.source == "ctx" ? 0 : expected.verify_k);
    EXPECT_EQ(head->target_tokens().need_live_rounds(), expected.branch == "tree");
    Rng rng(23);
    for (int prompt = 0; prompt < 3; ++prompt) {
        const auto tokens = random_ids(rng, 4 + 9 * prompt);
        const auto [best, flat] = random_best(rng, static_cast<int>(tokens.size()), 4);
        expected.prefill(tokens, best);
        const auto state =
            head->begin_prompt(tokens, Rows<const TokenId>(flat.data(), static_cast<int>(tokens.size()), 4));
        for (int round = 0; round < 30; ++round) {
            begin(*head, state.get());
            ASSERT_EQ(covered(*head, round % 3, state.get()), expected.active()) << "round " << round;
            if (round % 5 < 3) {
                const Proposal found = call_head(*head, state.get(), round % 3, 6);
                for (int r = 0; r < rows; ++r) expect_row(found, r, logits[r], expected.active());
            }
            DraftTree tree = DraftTree::with_root(static_cast<TokenId>(rng.below(vocab)));
            for (const TokenId id : random_ids(rng, static_cast<int>(rng.below(9)))) tree.add(id, 0, 0.0f);
            const bool all = head->target_tokens().nodes == VerifiedNodes::all;
            const int nodes = all ? tree.size() : 1 + static_cast<int>(rng.below(3));
            const auto [verified, verified_flat] = random_best(rng, nodes, 5);
            const auto bonus = static_cast<TokenId>(rng.below(vocab));
            expected.round(tree.tokens, verified, bonus);
            head->on_verified(state.get(), tree, {{}, bonus, verified_flat, 5});
        }
    }
}

ReferenceMicroSpec with(int window, int prompt_k, int verify_k,
                        void (*change)(ReferenceMicroSpec&) = nullptr) {
    ReferenceMicroSpec one{window, prompt_k, verify_k};
    if (change != nullptr) change(one);
    return one;
}
using T = ReferenceMicroSpec;

INSTANTIATE_TEST_SUITE_P(Ablations, MicroSpecStream,
                         ::testing::Values(with(3072, 3, 3), with(40, 3, 3),
                                           with(40, 2, 4, [](T& x) { x.branch = "last"; }),
                                           with(25, 3, 3, [](T& x) { x.source = "ctx"; }),
                                           with(25, 3, 3, [](T& x) { x.source = "ext"; }), with(7, 0, 0),
                                           with(1, 1, 1), with(40, 3, 3, [](T& x) { x.gather = "sync"; }),
                                           with(40, 3, 3, [](T& x) { x.gather = "indexed"; }),
                                           with(60, 3, 3, [](T& x) { x.branch = "tree"; }),
                                           with(30, 3, 3, [](T& x) { x.stream_rule = "new"; }),
                                           with(30, 3, 3, [](T& x) { x.prompt_rule = "last"; }),
                                           with(30, 3, 2, [](T& x) { x.bonus = "yes"; }),
                                           with(9, 3, 2, [](T& x) { x.eos = "yes"; })));

/// The default follows Algorithm 1 and the authors' code: every node of the tree.
TEST_F(MicroSpec, TakesTheTokensOfEveryNodeWhereTheyAreKnown) {
    const auto head = make("microspec:wmax=50,kver=1");
    EXPECT_EQ(head->target_tokens().nodes, VerifiedNodes::all);
    EXPECT_EQ(make("microspec")->target_tokens().nodes, VerifiedNodes::all);
    DraftTree tree = DraftTree::with_root(4);
    tree.add(5, 0, 0.0f);
    const std::vector<TokenId> path = {7}, nodes = {7, 8};
    const auto live = head->begin_prompt(std::vector<TokenId>{3}, {});
    const auto replayed = head->begin_prompt(std::vector<TokenId>{3}, {});
    head->on_verified(live.get(), tree, {{}, 7, nodes, 1});
    head->on_verified(replayed.get(), tree, {{}, 7, path, 1});
    EXPECT_EQ(covered(*head, 0, live.get()), (std::vector<TokenId>{3, 4, 5, 7, 8}));
    EXPECT_EQ(covered(*head, 0, replayed.get()), (std::vector<TokenId>{3, 4, 5, 7}));
}

/// Equation 4 windows the raw stream: a token that comes again stays, and an older one leaves.
TEST_F(MicroSpec, WindowsTheWholeStreamByDefault) {
    const std::vector<TokenId> prompt = {3, 4, 5}, again = {3, 6};
    for (const auto& [spec, expected] :
         {std::pair("microspec:wmax=3", std::vector<TokenId>{3, 5, 6}),
          std::pair("microspec:wmax=3,stream=new", std::vector<TokenId>{4, 5, 6})}) {
        const auto head = make(spec);
        const auto state = head->begin_prompt(prompt, {});
        DraftTree tree = DraftTree::with_root(again[0]);
        tree.add(again[1], 0, 0.0f);
        head->on_verified(state.get(), tree, {});
        EXPECT_EQ(covered(*head, 0, state.get()), expected) << spec;
    }
}

TEST_F(MicroSpec, FullHeadDraftsWhileTheSetIsEmpty) {
    const auto full = make("full");
    const Proposal expected = propose(*full, 0, 6);
    for (const char* gather : {"async", "sync", "indexed"}) {
        const auto head = make(fmt::format("microspec:source=ext,gather={}", gather));
        const auto state = head->begin_prompt(std::vector<TokenId>{3, 9}, {});
        begin(*head, state.get());
        const Proposal found = call_head(*head, state.get(), 0, 6);
        for (int r = 0; r < rows; ++r) expect_same_row(found, r, expected, r);
        EXPECT_EQ(head->cost_at(state.get(), 1, 0).bytes, full->cost(1).bytes);
        head->on_verified(state.get(), DraftTree::with_root(4), {});
        begin(*head, state.get());
        call_head(*head, state.get(), 0, 2);
        EXPECT_EQ(covered(*head, 0, state.get()), (std::vector<TokenId>{4}));
    }
}

TEST_F(MicroSpec, GatherModesProposeTheSame) {
    const auto async = make("microspec:wmax=50"), sync = make("microspec:wmax=50,gather=sync"),
               indexed = make("microspec:wmax=50,gather=indexed");
    std::vector<std::unique_ptr<HeadState>> states;
    Rng rng(4);
    for (LmHead* head : {async.get(), sync.get(), indexed.get()})
        states.push_back(head->begin_prompt({}, {}));
    for (int round = 0; round < 10; ++round) {
        DraftTree tree = DraftTree::with_root(static_cast<TokenId>(rng.below(vocab)));
        for (const TokenId id : random_ids(rng, 8)) tree.add(id, 0, 0.0f);
        std::vector<Proposal> found;
        int i = 0;
        for (LmHead* head : {async.get(), sync.get(), indexed.get()}) {
            HeadState* state = states[i++].get();
            begin(*head, state);
            found.push_back(call_head(*head, state, 0, 6));
            head->on_verified(state, tree, {});
        }
        for (int r = 0; r < rows; ++r) {
            expect_same_row(found[1], r, found[0], r);
            expect_same_row(found[2], r, found[0], r);
        }
    }
}

TEST_F(MicroSpec, PacksOncePerChangeAndCountsBytes) {
    const auto head = make("microspec:wmax=50,gather=sync");
    const std::vector<TokenId> prompt = {3, 9, 9, 4};
    const auto state = head->begin_prompt(prompt, {});
    call_head(*head, state.get(), 0, 2);
    const std::uint64_t three_rows =
        matrix_.gather_rows(exec_->pool(), std::vector<TokenId>{3, 4, 9}).bytes();
    EXPECT_EQ(gathered(), 2 * three_rows);
    EXPECT_EQ(head->cost_at(state.get(), 4, 1).active_rows, 3);
    // The call that packed the rows also counts reading and writing them; the next one only reads.
    EXPECT_EQ(head->cost_at(state.get(), 4, 0).bytes - head->cost_at(state.get(), 4, 1).bytes,
              2 * three_rows);
    EXPECT_EQ(head->cost_at(state.get(), 4, 0).scattered_bytes, three_rows);
    EXPECT_EQ(head->cost_at(state.get(), 4, 1).scattered_bytes, 0);
    EXPECT_EQ(head->cost(4).active_rows, 50);
    call_head(*head, state.get(), 1, 2);
    EXPECT_EQ(gathered(), 0);
    // The same tokens again: nothing to pack.
    head->on_verified(state.get(), DraftTree::with_root(4), {});
    call_head(*head, state.get(), 0, 2);
    EXPECT_EQ(gathered(), 0);
    head->on_verified(state.get(), DraftTree::with_root(5), {});
    call_head(*head, state.get(), 0, 2);
    EXPECT_GT(gathered(), 0);
    EXPECT_EQ(covered(*head, 0, state.get()), (std::vector<TokenId>{3, 4, 5, 9}));
}

TEST_F(MicroSpec, RefillsOnSideStreamOncePerRound) {
    const auto head = make("microspec:wmax=50");
    const auto state = head->begin_prompt(std::vector<TokenId>{3, 9, 9, 4}, {});
    begin(*head, state.get());
    call_head(*head, state.get(), 0, 2);
    // On the side stream, or on this thread if the stream's thread had no core yet.
    const auto refilled = [&] {
        return std::any_of(events_.begin(), events_.end(), [](const SpanEvent& event) {
            return event.phase == Phase::gather && event.rows == 50 && event.bytes > 0;
        });
    };
    EXPECT_TRUE(refilled());
    call_head(*head, state.get(), 1, 2);
    EXPECT_FALSE(refilled());
    // A round without drafts leaves its refill pending; the next one starts from the newer set.
    head->on_verified(state.get(), DraftTree::with_root(5), {});
    begin(*head, state.get());
    head->on_verified(state.get(), DraftTree::with_root(6), {});
    begin(*head, state.get());
    const auto logits = dense();
    const Proposal found = call_head(*head, state.get(), 0, 6);
    for (int r = 0; r < rows; ++r) expect_row(found, r, logits[r], {3, 4, 5, 6, 9});
    begin(*head, state.get());  // a sequence may end while its rows are being packed
}

TEST_F(MicroSpec, FullWindowEqualsFullHead) {
    std::vector<TokenId> prompt(vocab);
    std::iota(prompt.rbegin(), prompt.rend(), 0);
    const auto head = make("microspec"), full = make("full");
    const auto state = head->begin_prompt(prompt, {});
    begin(*head, state.get());
    const Proposal found = call_head(*head, state.get(), 1, 10), expected = propose(*full, 1, 10);
    for (int r = 0; r < rows; ++r) expect_same_row(found, r, expected, r);
    EXPECT_EQ(scores(*head, 0, state.get()), scores(*full));
    EXPECT_EQ(covered(*head, 0), covered(*full, 0));
}

TEST_F(MicroSpec, SequencesOfABatchAreIndependent) {
    const auto head = make("microspec:wmax=20");
    const auto a = head->begin_prompt(std::vector<TokenId>{10, 11, 12}, {});
    const auto b = head->begin_prompt(std::vector<TokenId>{20}, {});
    begin_round(*head, {a.get(), b.get()});
    const std::vector<HeadState*> states = {a.get(), a.get(), b.get(), b.get(), a.get()};
    const Proposal found = propose(*head, 0, 2, states);
    const Proposal alone_a = call_head(*head, a.get(), 0, 2), alone_b = call_head(*head, b.get(), 0, 2);
    for (int r = 0; r < rows; ++r) expect_same_row(found, r, states[r] == a.get() ? alone_a : alone_b, r);
}

TEST_F(MicroSpec, ProposesTokensOfTrimmedDrafterHead) {
    std::vector<TokenId> held(100);
    std::iota(held.begin(), held.end(), 150);
    const kernels::Matrix own = matrix_.gather_rows(exec_->pool(), held);
    weights_.lm_head = &own;
    weights_.row_ids = held;
    const auto head = make("microspec");
    const auto state = head->begin_prompt(std::vector<TokenId>{3, 160, 200, 299}, {});
    begin(*head, state.get());
    EXPECT_EQ(covered(*head, 0, state.get()), (std::vector<TokenId>{160, 200}));
    const Proposal found = call_head(*head, state.get(), 0, 4);
    EXPECT_EQ(found.counts, std::vector<int>(rows, 2));
    EXPECT_EQ(found.ids[0] + found.ids[1], 360);
}

TEST_F(MicroSpec, RejectsUnknownParameterWords) {
    EXPECT_EQ(error_message("microspec:source=all"), "head microspec: source=all is not one of both|ctx|ext");
    EXPECT_EQ(error_message("microspec:gather=later"),
              "head microspec: gather=later is not one of async|sync|indexed");
    EXPECT_EQ(error_message("microspec:wmax=0"), "head microspec: wmax=0 is outside 1..1048576");
}

}  // namespace
}  // namespace draftscope::testing
