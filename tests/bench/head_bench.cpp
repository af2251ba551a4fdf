#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/transformer/target.h"
#include "kernels/row_major_matrix.h"
#include "profiler/machine/machine.h"
#include "tests/support/demo_model.h"
#include "tests/support/head_specs.h"
#include "tests/support/host_call.h"

/// Measures the cost of a round's LM head calls for several heads in alternation. A round is a call of one
/// row and three levels of four rows. It follows a target forward pass, which leaves other weights in the
/// caches, as in a decode loop. Hidden rows come from the target.
///
/// Prints median and best of the rounds, in total and by phase, and each head's share of the full head. Two
/// probes over as much memory as the head, before and after the rounds, give the time that bytes explain. One
/// reads a single stream repeatedly. The other reads rows as long and as scattered as an indexed head's,
/// after as many other bytes as the target pass reads. "x probes" is the best round relative to the probes'
/// best passes, "x medians" the same for medians. The rest is the constant part. Thread barriers contribute
/// the number of parallel regions times the time of an empty one.
///
/// Arguments: threads=N rounds=N precision=int8 drafter=eagle3 rows=4 (of the later levels)
/// heads=full;slimspec;specvocab (separated by semicolons; default: every head).
namespace draftscope {
namespace {

constexpr int context = 192;
constexpr int levels = 4;

struct Options {
    int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    int rounds = 60;
    kernels::Precision precision = kernels::Precision::int8;
    std::string heads;               ///< "" = every head that decodes
    std::string drafter = "eagle3";  ///< drafter whose head weights are used
    int rows = 4;                    ///< rows of the levels after the first
};

template <typename T>
T must(Result<T> result) {
    if (result.ok()) return std::move(result).value();
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(2);
}
void must(const Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    std::exit(2);
}

/// Counts parallel regions.
class CountedPool final : public kernels::ThreadPool {
  public:
    explicit CountedPool(std::unique_ptr<kernels::ThreadPool> exec) : exec_(std::move(exec)) {}
    int threads() const override { return exec_->threads(); }
    kernels::Isa isa() const override { return exec_->isa(); }
    int pinned() const override { return exec_->pinned(); }
    void parallel(int parts, FunctionRef<void(int part)> work) override {
        regions += parts > 1 && exec_->threads() > 1 ? 1 : 0;
        exec_->parallel(parts, work);
    }
    std::byte* scratch(int thread, std::size_t bytes) override { return exec_->scratch(thread, bytes); }
    std::byte* shared_scratch(std::size_t bytes) override { return exec_->shared_scratch(bytes); }
    kernels::PrefetchHint* prefetch_hint(int thread) override { return exec_->prefetch_hint(thread); }

    std::int64_t regions = 0;

  private:
    std::unique_ptr<kernels::ThreadPool> exec_;
};

struct Timed {
    std::string name;
    std::unique_ptr<LmHead> head;
    std::vector<double> whole;  ///< us per round
    std::map<std::string, std::vector<double>> phases;
    // Sums over all rounds:
    double bytes = 0;
    double scattered = 0;  ///< part of `bytes` read as scattered rows
    std::int64_t regions = 0;
};

/// Returns the faster maximum and the mean of the medians of two probe runs.
ProbedRate joined(const ProbedRate& a, const ProbedRate& b) {
    return {std::max(a.best, b.best), (a.median + b.median) / 2};
}

double middle(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}
double least(const std::vector<double>& values) {
    return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

class Rounds {
  public:
    explicit Rounds(const Options& options)
        : options_(options),
          counted_(new CountedPool(kernels::make_thread_pool(options.threads))),
          exec_(kernels::make_cpu_backend(std::unique_ptr<kernels::ThreadPool>(counted_))),
          target_(must(Target::load(testing::demo_model_path(), *exec_, options.precision))) {
        KvCache cache = target_->make_cache(context + 1);
        std::vector<TokenId> tokens;
        for (int i = 0; i < context; ++i) tokens.push_back(1000 + (i * 7919) % 40000);
        must(target_->prefill(cache, tokens, {}, prefilled_));
        prompt_ = tokens;
        weights_.lm_head = &target_->lm_head();
        weights_.vocab = target_->config().vocab;
        weights_.hidden = target_->config().hidden;
        cache_ = std::make_unique<KvCache>(std::move(cache));
    }

    Timed make(const std::string& text) {
        Timed timed;
        timed.name = text;
        const HeadSpec spec = must(parse_head_spec(text));
        HeadFiles artefacts;
        const std::string folder = std::string(DS_SOURCE_DIR) + "/assets/heads/";
        artefacts.ranking_path = folder + "demo_ranking.safetensors";
        if (const HeadInfo* info = find_head(spec.id);
            info != nullptr && info->required_file == RequiredFile::fitted)
            artefacts.artefact_path = folder + options_.drafter + "/" + spec.id + ".safetensors";
        timed.head = must(make_head(spec, artefacts));
        must(timed.head->prepare(*exec_, weights_));
        return timed;
    }

    void round(Timed& timed, int number) {
        // Reading the target's layers evicts the head from the caches.
        const TokenId token = 1234;
        const SequenceTokens sequence{cache_.get(), {&token, 1}, {}, nullptr};
        must(target_->forward({{&sequence, 1}, {}, {}, true}, out_));
        std::vector<SpanEvent> events;
        // If a prompt fills the head's window (MicroSpec), it holds as many tokens as with a decoded text,
        // though different ones.
        const int k = timed.head->target_tokens().at_prompt;
        std::vector<TokenId> seen;
        for (int i = 0; i < context * k; ++i) seen.push_back((i * 6151) % weights_.vocab);
        const std::unique_ptr<HeadState> state =
            timed.head->begin_prompt(prompt_, Rows<const TokenId>(seen.data(), k > 0 ? context : 0, k));
        const std::vector<HeadState*> states(static_cast<std::size_t>(std::max(options_.rows, 1)),
                                             state.get());
        double whole = 0;
        for (int level = 0; level < levels; ++level) {
            const int rows = level == 0 ? 1 : options_.rows;
            const int first = (number * 13 + level * 4) % (context - rows);
            const Rows<const float> hidden(prefilled_.hidden.data() + std::ptrdiff_t{first} * weights_.hidden,
                                           rows, weights_.hidden);
            const std::span own(states.data(), static_cast<std::size_t>(rows));
            call_.begin(*timed.head, level, hidden, hidden, own);
            // The router runs during the drafter's layer, which this benchmark lacks.
            if (timed.head->needs().inputs) std::this_thread::sleep_for(std::chrono::milliseconds(2));
            const std::int64_t regions = counted_->regions;
            const TimeNs start = monotonic_ns();
            (void)call_.propose(*timed.head, level, hidden, own, 10);
            whole += static_cast<double>(monotonic_ns() - start) / 1e3;
            timed.regions += counted_->regions - regions;
            const HeadCost cost = timed.head->cost_at(state.get(), rows, level);
            timed.bytes += static_cast<double>(cost.bytes);
            timed.scattered += static_cast<double>(cost.scattered_bytes);
        }
        phases_.drain(events);
        const double us_per_tick = TickScale::calibrate().ns_per_tick() / 1e3;
        std::map<std::string, double> spent;
        for (const SpanEvent& event : events) {
            spent[std::string(to_text(event.phase))] +=
                static_cast<double>(event.end_ticks - event.start_ticks) * us_per_tick;
        }
        for (const auto& [phase, us] : spent) timed.phases[phase].push_back(us);
        timed.whole.push_back(whole);
    }

    /// Returns the microseconds of an empty parallel region.
    double empty_region() {
        std::vector<double> times;
        for (int i = 0; i < 2000; ++i) {
            const TimeNs start = monotonic_ns();
            counted_->parallel(counted_->threads(), [](int) {});
            times.push_back(static_cast<double>(monotonic_ns() - start) / 1e3);
        }
        return middle(std::move(times));
    }

    const kernels::Matrix& lm_head() const { return target_->lm_head(); }
    int target_megabytes() const { return static_cast<int>(target_->weight_bytes() >> 20); }
    kernels::Backend& exec() { return *exec_; }

  private:
    const Options& options_;
    CountedPool* counted_;  ///< owned by exec_
    std::unique_ptr<kernels::Backend> exec_;
    PhaseRecorder phases_;
    testing::HostCall call_{*exec_, phases_};
    std::unique_ptr<Target> target_;
    std::unique_ptr<KvCache> cache_;
    HeadWeights weights_;
    std::vector<TokenId> prompt_;
    ForwardOutput prefilled_, out_;
};

/// Splits "full;slimspec"; "" = every head that decodes.
std::vector<std::string> head_names(const std::string& list) {
    std::vector<std::string> names;
    for (std::size_t first = 0; first < list.size();) {
        const std::size_t end = std::min(list.find(';', first), list.size());
        names.push_back(list.substr(first, end - first));
        first = end + 1;
    }
    return list.empty() ? testing::specs_of_heads({}) : names;
}

void run(const Options& options) {
    Rounds rounds(options);
    std::vector<Timed> heads;
    for (const std::string& head : head_names(options.heads)) heads.push_back(rounds.make(head));
    const int megabytes = std::max(1, static_cast<int>(rounds.lm_head().bytes() >> 20)),
              between = rounds.target_megabytes();
    const auto row_bytes =
        static_cast<int>(kernels::RowMajorMatrix::make(rounds.exec().pool(), rounds.lm_head()).row_bytes());
    const auto probe = [&] {
        return std::pair(probe_stream(options.threads, megabytes, 0),
                         probe_scattered(options.threads, megabytes, row_bytes, between));
    };
    const auto before = probe();
    for (int i = 0; i < options.rounds; ++i)
        for (Timed& timed : heads) rounds.round(timed, i);
    const auto after = probe();
    const ProbedRate stream = joined(before.first, after.first),
                     scattered = joined(before.second, after.second);
    const ProbedRate cached = probe_scattered(options.threads, megabytes, row_bytes, 0);
    const double region = options.threads > 1 ? rounds.empty_region() : 0;
    std::printf(
        "%d threads, %s, M 1 and %d; GB/s of probes over %d MiB, best (median): one stream %.1f (%.1f), "
        "scattered rows of %d bytes after %d MiB of others %.1f (%.1f), again and again %.1f (%.1f); an "
        "empty region %.1f us\n",
        options.threads, std::string(kernels::to_text(options.precision)).c_str(), options.rows, megabytes,
        stream.best, stream.median, row_bytes, between, scattered.best, scattered.median, cached.best,
        cached.median, region);
    std::printf("%-22s %9s %8s %6s %6s %8s %8s %8s %8s %9s %7s %7s %8s   best us by phase\n", "head",
                "median us", "best us", "share", "best", "kB strm", "kB gath", "probe us", "x probes",
                "x medians", "regions", "meet us", "const us");
    const double full = middle(heads.front().whole), full_best = least(heads.front().whole);
    for (const Timed& timed : heads) {
        const double us = middle(timed.whole), best = least(timed.whole);
        const double gathered = timed.scattered / options.rounds,
                     streamed = timed.bytes / options.rounds - gathered,
                     regions = static_cast<double>(timed.regions) / options.rounds;
        std::string parts;
        for (const auto& [phase, times] : timed.phases)
            parts += fmt::format(" {} {:.0f}", phase, least(times));
        const double explained = (streamed / stream.best + gathered / scattered.best) / 1e3;
        const double usual = (streamed / stream.median + gathered / scattered.median) / 1e3;
        std::printf("%-22s %9.0f %8.0f %6.3f %6.3f %8.0f %8.0f %8.0f %8.2f %9.2f %7.0f %7.0f %8.0f  %s\n",
                    timed.name.c_str(), us, best, us / full, best / full_best, streamed / 1e3, gathered / 1e3,
                    explained, best / explained, us / usual, regions, regions * region, best - explained,
                    parts.c_str());
    }
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    draftscope::Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string text = argv[i];
        const std::size_t equals = text.find('=');
        const std::string name = text.substr(0, equals);
        const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
        const auto precision = draftscope::kernels::precision_from(value);
        if (name == "threads") {
            options.threads = std::max(1, std::atoi(value.c_str()));
        } else if (name == "rounds") {
            options.rounds = std::max(1, std::atoi(value.c_str()));
        } else if (name == "rows") {
            options.rows = std::clamp(std::atoi(value.c_str()), 1, 64);
        } else if (name == "drafter" && !value.empty()) {
            options.drafter = value;
        } else if (name == "heads" && !value.empty()) {
            options.heads = value;
        } else if (name == "precision" && precision) {
            options.precision = *precision;
        } else {
            std::fprintf(
                stderr,
                "%s: expected threads=N rounds=N precision=f32|bf16|int8|int4 drafter=D rows=N heads=A;B\n",
                argv[i]);
            return 2;
        }
    }
    draftscope::run(options);
    return 0;
}
