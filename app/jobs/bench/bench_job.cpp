#include "app/jobs/bench/bench_job.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "app/jobs/resolve/artefacts.h"
#include "app/jobs/resolve/resolve.h"
#include "app/jobs/run/pool.h"
#include "app/jobs/run/prompt_file.h"
#include "app/jobs/run/recorder.h"
#include "app/jobs/run/run_file.h"
#include "app/jobs/run/run_job.h"
#include "base/clock.h"
#include "capture/head_traits.h"
#include "capture/run_setting.h"
#include "engine/draft/registry.h"
#include "engine/heads/head.h"

namespace draftscope {
namespace {

std::string trimmed(std::string text) {
    const auto is_space = [](char c) { return c == ' '; };
    text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), is_space));
    text.erase(std::find_if_not(text.rbegin(), text.rend(), is_space).base(), text.end());
    return text;
}

std::string method_name(const BenchMethod& method) {
    std::string name(drafter_id(method.drafter));
    const DrafterInfo drafter = drafter_traits(method.drafter);
    if (drafter.uses_head) name = fmt::format("{} x {}", name, method.head);
    if (!method.tree.empty() && drafter.drafts) name = fmt::format("{} @ {}", name, method.tree);
    return name;
}

Status check(const BenchConfig& config) {
    DS_TRY(check_given_artefacts(config.run.artefacts));
    if (config.run.prompts_file.empty()) return bad_input("--prompts: bench needs a prompt file");
    if (config.repeat < 0) return bad_input("--repeat {}: must be at least 1", config.repeat);
    if (config.block < 1) return bad_input("--block {}: must be at least 1", config.block);
    return {};
}

/// Returns the settings of a method's runs.
RunConfig make_run_config(const BenchConfig& config, const BenchMethod& method) {
    RunConfig run = config.run;
    run.drafter = method.drafter;
    run.head = method.head;
    run.tree = method.tree;
    const auto head = parse_head_spec(method.head);  // resolve_run() reports an invalid spec
    std::erase_if(run.artefacts,
                  [&](const std::string& artefact) { return head.ok() && !uses_artefact(*head, artefact); });
    run.calibration_rounds = 0;
    run.baseline = 0;
    run.shadow.clear();
    run.save.clear();
    run.resume = false;
    run.tier = RunConfig().tier;
    return run;
}

/// Returns the methods, each once: plain decoding, the heads and the others. Their files and trees are
/// checked.
Result<std::vector<BenchMethod>> list_methods(const BenchConfig& config) {
    std::vector<BenchMethod> methods;
    if (config.plain)
        methods.push_back(
            {std::string(plain_drafter), std::string(full_head_id), "", std::string(plain_drafter)});
    std::vector<std::string> wanted;
    for (const std::string& head : config.heads)
        wanted.push_back(fmt::format("{} x {}", config.run.drafter, head));
    wanted.insert(wanted.end(), config.methods.begin(), config.methods.end());
    for (const std::string& text : wanted) {
        DS_ASSIGN(BenchMethod method, parse_bench_method(text, config.run));
        if (std::ranges::find(methods, method.name, &BenchMethod::name) == methods.end())
            methods.push_back(std::move(method));
    }
    if (methods.size() < (config.plain ? 2u : 1u))
        return bad_input("bench: nothing to compare; give --heads or --method");
    std::vector<HeadSpec> heads;
    for (BenchMethod& method : methods) {
        DS_TRY(validate(make_run_config(config, method)));
        DS_ASSIGN(const RunConfig resolved, resolve_defaults(make_run_config(config, method)));
        if (drafter_traits(method.drafter).drafts) method.resolved_tree = resolved.tree;
        DS_ASSIGN(HeadSpec head, parse_head_spec(method.head));
        heads.push_back(std::move(head));
    }
    DS_TRY(check_artefacts_used(config.run.artefacts, heads));
    return methods;
}

/// Adds a block's traffic to the mean over rounds; `part` is the block's share of them.
void add_reads(const HeadTraffic& block, double part, HeadTraffic& mean) {
    const auto move = [part](double& value, double to) { value += (to - value) * part; };
    if (part == 1) mean.explained_ns = block.explained_ns;
    if (mean.explained_ns && block.explained_ns)
        move(*mean.explained_ns, *block.explained_ns);
    else
        mean.explained_ns.reset();
    move(mean.streamed, block.streamed);
    move(mean.gathered, block.gathered);
    move(mean.flops, block.flops);
    move(mean.head_ns, block.head_ns);
}

/// Runs the blocks in turns and collects the samples.
class Bench {
  public:
    Bench(const BenchConfig& config, DebugGate& gate, const JobHooks& hooks)
        : config_(config), gate_(gate), hooks_(hooks) {}

    Result<BenchReport> run() {
        const TimeNs start = monotonic_ns();
        DS_TRY(check(config_));
        report_.repeat = config_.repeat > 0 ? config_.repeat : config_.run.temperature > 0 ? 3 : 1;
        report_.first_seed = config_.run.seed;
        DS_ASSIGN(report_.methods, list_methods(config_));
        prepare_samples();
        DS_TRY(list_prompts());
        DS_TRY(read_earlier());  // before the run has a file of its own
        DS_TRY(file_.prepare());
        const int blocks = (conversations_ + report_.block - 1) / report_.block;
        // The control is the last of a block's turns, or the first one: as far from its twin as can be.
        const int methods = static_cast<int>(report_.methods.size());
        const int turns = methods + (config_.control ? 1 : 0);
        const int all = turns * report_.repeat * blocks + methods;
        int done = 0;
        for (int turn = 0; turn < methods && !report_.cancelled; ++turn) {
            report_progress(static_cast<double>(done++) / all, "warm-up", turn);
            DS_TRY(warm_up(turn));
        }
        DS_TRY(file_.start());
        for (int r = 0; r < report_.repeat && !report_.cancelled; ++r)
            for (int b = 0; b < blocks && !report_.cancelled; ++b) {
                finished_.assign(turns, std::vector<bool>(report_.samples.prompts.size()));
                for (int i = 0; i < turns && !report_.cancelled; ++i) {
                    const int turn = (r + b) % 2 == 0 ? i : turns - 1 - i;
                    std::string where = fmt::format("block {} of {}", b + 1, blocks);
                    if (report_.repeat > 1)
                        where = fmt::format("repetition {} of {}, {}", r + 1, report_.repeat, where);
                    report_progress(static_cast<double>(done++) / all, where, turn);
                    DS_TRY(run_block(r, b, turn));
                }
                discard_unfinished(r, b);
            }
        if (!report_.cancelled) file_.release_earlier();
        if (!report_.cancelled && report_.finished_conversations == 0)
            return bad_input("--prompts {}: no prompt could be decoded; {}", config_.run.prompts_file,
                             report_.notes.empty() ? "" : report_.notes.back());
        RunReport stored;
        file_.close(stored);
        report_.capture = stored.capture;
        report_.storage_error = stored.storage_error;
        report_.table = bench_table(report_.samples);
        for (const LatencySamples& one : latency_) report_.latency.push_back(one.summarised());
        report_.drift = bench_drift(report_.samples);
        report_.seconds = seconds(monotonic_ns() - start);
        return std::move(report_);
    }

  private:
    /// Finds plain decoding, and the full head that each method is compared with.
    void prepare_samples() {
        auto& samples = report_.samples;
        samples.methods.resize(report_.methods.size());
        for (std::size_t m = 0; m < report_.methods.size(); ++m) {
            const BenchMethod& one = report_.methods[m];
            if (!drafter_traits(one.drafter).drafts) samples.plain = m;
            if (!drafter_traits(one.drafter).uses_head) continue;
            for (std::size_t f = 0; f < report_.methods.size(); ++f) {
                const BenchMethod& full = report_.methods[f];
                if (is_full_head(full.head) && full.drafter == one.drafter && full.tree == one.tree)
                    samples.methods[m].full = f;
            }
        }
        report_.same.assign(report_.methods.size(), 0);
        report_.compared.assign(report_.methods.size(), 0);
        report_.reads.assign(report_.methods.size(), {});
        timed_rounds_.assign(report_.methods.size(), 0);
        latency_.resize(report_.methods.size());
    }

    /// Creates one entry for every turn of every conversation, in the order of the file.
    Status list_prompts() {
        const RunConfig& run = config_.run;
        DS_ASSIGN(const PromptSet set, read_prompts(run));
        const std::vector<Conversation>& conversations = set.conversations;
        conversations_ = static_cast<int>(conversations.size());
        report_.conversations = conversations.size();
        // Two blocks at least, so that every method is first as often as last.
        report_.block = std::max(1, std::min(config_.block, (conversations_ + 1) / 2));
        for (std::size_t c = 0; c < conversations.size(); ++c) {
            first_prompt_.push_back(report_.samples.prompts.size());
            for (std::size_t t = 0; t < conversations[c].turns.size(); ++t) {
                places_[conversations[c].first_ordinal + static_cast<int>(t)] =
                    report_.samples.prompts.size();
                report_.samples.prompts.push_back({conversations[c].category, c, c / report_.block});
            }
        }
        first_prompt_.push_back(report_.samples.prompts.size());
        tokens_.resize(report_.samples.prompts.size());
        for (BenchMethodSamples& method : report_.samples.methods)
            method.resize(report_.repeat, report_.samples.prompts.size());
        if (config_.control)
            report_.samples.control.emplace().resize(report_.repeat, report_.samples.prompts.size());
        return {};
    }

    /// Reads the capture that --resume continues. Each of its runs must be one of this bench.
    Status read_earlier() {
        const std::string path = config_.run.resume ? EarlierRuns::find(config_.run.save) : "";
        if (path.empty()) return {};
        DS_ASSIGN(earlier_, EarlierRuns::read(path));
        std::set<std::string> roles;
        for (int r = 0; r < report_.repeat; ++r) {
            for (const BenchMethod& method : report_.methods) roles.insert(bench_role(method.name, r, false));
            if (config_.control) roles.insert(bench_role(report_.methods.front().name, r, true));
        }
        for (const RunRecords& run : earlier_.runs())
            if (const std::string role = describe_part(run.started.run).role; !roles.contains(role))
                return bad_input(
                    "--resume: {} has a run of {}, which this bench does not decode; give the same methods "
                    "and "
                    "repetitions, or another name for --save",
                    path, role);
        return {};
    }

    bool is_control(int turn) const { return turn == static_cast<int>(report_.methods.size()); }
    const BenchMethod& method_of(int turn) const { return report_.methods[is_control(turn) ? 0 : turn]; }
    BenchMethodSamples& samples_of(int turn) {
        return is_control(turn) ? *report_.samples.control : report_.samples.methods[turn];
    }

    /// Decodes a few tokens of the first conversation, for the caches.
    Status warm_up(int turn) {
        RunConfig run = make_run_config(config_, method_of(turn));
        run.max_new = std::min(run.max_new, 16);
        RunHooks hooks;
        hooks.frontend = "bench";
        hooks.first_conversation = 0;
        hooks.conversations = 1;
        recorder_.clear();
        auto done = host_.run(run, recorder_, gate_, hooks);
        if (!done.ok()) return named(method_of(turn), done.error());
        report_.cancelled = done->cancelled;
        return {};
    }

    static Error named(const BenchMethod& method, const Error& error) {
        return {error.kind, fmt::format("{}: {}", method.name, error.message)};
    }

    Status run_block(int repetition, int block, int turn) {
        const BenchMethod& method = method_of(turn);
        RunConfig run = make_run_config(config_, method);
        run.seed += repetition;  // a repetition at temperature > 0 is another sample of texts
        RunHooks hooks;
        hooks.frontend = "bench";
        hooks.first_conversation = block * report_.block;
        hooks.conversations = report_.block;
        hooks.earlier = &earlier_;
        hooks.on_decoding = [this] { file_.release_earlier(); };
        hooks.bench =
            nlohmann::json{{"method", method.name}, {"repetition", repetition}, {"control", is_control(turn)}}
                .dump();
        recorder_.clear();
        auto done = host_.run(run, recorder_, gate_, hooks);
        if (!done.ok()) return named(method, done.error());
        recorder_.flush();
        const auto snapshot = recorder_.snapshot();
        const RunRow& row = *snapshot->run(done->run_id);
        report_.target = row.target;
        report_.precision = row.precision;
        report_.backend = row.backend;
        report_.verify = row.verify;
        report_.synthetic = row.synthetic;
        report_.acceptance = row.acceptance;
        report_.threads = row.threads;
        report_.batch = row.batch;
        report_.temperature = row.temperature;
        report_.cancelled = report_.cancelled || done->cancelled;
        for (const std::string& note : done->notes)
            if (std::ranges::find(report_.notes, note) == report_.notes.end()) report_.notes.push_back(note);
        auto verified = verify_times(*snapshot, row.id);
        for (const DrivenPrompt& prompt : driven_prompts(*snapshot, row.id)) {
            const PromptRow* about = snapshot->prompt(prompt.prompt_id);
            if (about == nullptr) continue;
            const std::size_t place = places_.at(about->ordinal);
            BenchMethodSamples& samples = samples_of(turn);
            samples.units[repetition][place] = prompt.unit;
            samples.prefill_ns[repetition][place] = static_cast<double>(about->prefill_ns);
            samples.verify[repetition][place] = std::move(verified[prompt.prompt_id]);
            if (repetition > 0) continue;
            samples.active_rows[place] = prompt.active_rows;
            samples.row_tokens[place] = prompt.row_tokens;
        }
        for (const HeadStats& stats : head_stats(*snapshot, row.id))
            if (stats.mode == HeadMode::drive && stats.timed_rounds > 0 && !done->cancelled &&
                !is_control(turn)) {
                const auto rounds = static_cast<double>(stats.timed_rounds);
                const double part = rounds / (timed_rounds_[turn] += rounds);
                add_reads(head_traffic(row, stats), part, report_.reads[turn]);
            }
        if (!is_control(turn) && !done->cancelled) latency_[turn].add(*snapshot, row.id);
        record_finished(*done, repetition, turn);
        return {};
    }

    /// Records which prompts a method has finished, and whether their tokens equal those of the first method.
    void record_finished(const RunReport& done, int repetition, int turn) {
        for (const PromptReport& prompt : done.prompts) {
            if (prompt.outcome.finish == Finish::cancelled) continue;
            const std::size_t place = places_.at(prompt.ordinal);
            finished_[turn][place] = true;
            if (repetition > 0 || is_control(turn)) continue;
            auto& known = tokens_[place];
            if (!known) known = prompt.outcome.tokens;
            ++report_.compared[turn];
            report_.same[turn] += *known == prompt.outcome.tokens ? 1 : 0;
        }
    }

    bool finished_by_all(std::size_t conversation) const {
        for (std::size_t p = first_prompt_[conversation]; p < first_prompt_[conversation + 1]; ++p)
            for (const std::vector<bool>& method : finished_)
                if (!method[p]) return false;
        return true;
    }

    /// Removes the samples of conversations that some methods did not finish, because the texts would differ.
    void discard_unfinished(int repetition, int block) {
        const std::size_t first = block * report_.block;
        const auto end = std::min(first + report_.block, first_prompt_.size() - 1);
        for (std::size_t c = first; c < end; ++c) {
            // A conversation of which no method decoded anything was skipped.
            const bool whole = report_.cancelled ? finished_by_all(c) : finished_[0][first_prompt_[c]];
            if (whole && repetition == 0) ++report_.finished_conversations;
            if (whole) continue;
            for (int turn = 0; turn < static_cast<int>(finished_.size()); ++turn)
                for (std::size_t p = first_prompt_[c]; p < first_prompt_[c + 1]; ++p) {
                    samples_of(turn).units[repetition][p] = {};
                    samples_of(turn).verify[repetition][p].clear();
                }
        }
    }

    void report_progress(double fraction, const std::string& where, int turn) const {
        hooks_.report(fraction, fmt::format("{}: {}{}", where, method_of(turn).name,
                                            is_control(turn) ? ", again for the noise floor" : ""));
    }

    const BenchConfig& config_;
    DebugGate& gate_;
    const JobHooks& hooks_;
    EngineHost host_;
    Recorder recorder_{{}, unwatched_interval};
    RunFile file_{config_.run, recorder_};
    EarlierRuns earlier_;
    BenchReport report_;
    int conversations_ = 0;
    std::vector<std::vector<bool>> finished_;                  ///< [turn][prompt], in the current block
    std::vector<LatencySamples> latency_;                      ///< by method
    std::vector<double> timed_rounds_;                         ///< by method: rounds in `reads`
    std::map<int, std::size_t> places_;                        ///< of prompts in the samples, by ordinal
    std::vector<std::size_t> first_prompt_;                    ///< by conversation, then the end
    std::vector<std::optional<std::vector<TokenId>>> tokens_;  ///< by prompt: of the first method
};

}  // namespace

Result<BenchMethod> parse_bench_method(const std::string& text, const RunConfig& base) {
    BenchMethod method{base.drafter, base.head, base.tree, ""};
    std::string rest = text;
    if (const auto at = rest.find(" @ "); at != std::string::npos) {
        method.tree = trimmed(rest.substr(at + 3));
        rest.resize(at);
    }
    if (const auto at = rest.find(" x "); at != std::string::npos) {
        method.head = trimmed(rest.substr(at + 3));
        rest.resize(at);
    }
    method.drafter = trimmed(rest);
    if (method.drafter.empty() || method.head.empty())
        return bad_input(
            "--method {}: expected DRAFTER[ x HEAD][ @ TREE], as in \"eagle3 x microspec @ chain=3\"", text);
    if (!drafter_traits(method.drafter).uses_head) method.head = full_head_id;
    if (!drafter_traits(method.drafter).drafts) method.tree.clear();
    method.name = method_name(method);
    return method;
}

Result<BenchReport> run_bench(const BenchConfig& config, DebugGate& gate, const JobHooks& hooks) {
    return Bench(config, gate, hooks).run();
}

}  // namespace draftscope
