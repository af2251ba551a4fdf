#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/heads/head.h"
#include "engine/model/target.h"
#include "kernels/row_store.h"
#include "profiler/machine.h"
#include "tests/support/demo_model.h"

/// What one round of draft-head calls costs, of several heads in turns: one row, then three levels of four,
/// after a target pass that leaves other weights in the caches, as in a decode loop. Hidden rows are the
/// target's own. Best and median of the rounds, whole and by phase, and each head's share of the full head.
/// What bytes explain is said by two probes over as much memory as the head takes: of one stream, and of rows
/// as long and as scattered as an indexed head's, for the bytes that it reads so. Arguments: threads=N
/// rounds=N precision=int8 drafter=eagle3 rows=4 (of the later levels) heads=full;slimspec;specvocab
/// (semicolons between).
namespace draftscope {
namespace {

constexpr int context = 192;
constexpr int levels = 4;

struct Options {
    int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    int rounds = 60;
    kernels::Precision precision = kernels::Precision::int8;
    std::string heads = "full;slimspec;specvocab";
    std::string drafter = "eagle3";  ///< whose artefacts
    int rows = 4;                    ///< of the levels after the first
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

struct Timed {
    std::string name;
    std::unique_ptr<Head> head;
    std::vector<double> whole;  ///< us a round
    std::map<std::string, std::vector<double>> phases;
    double bytes = 0;      ///< of all rounds
    double scattered = 0;  ///< of these, read as scattered rows
    bool indexed = false;  ///< phase head reads scattered rows
};

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
          exec_(kernels::make_cpu_exec(options.threads)),
          target_(must(Target::load(testing::demo_model_path(), *exec_, options.precision))) {
        KvCache cache = target_->make_cache(context + 1);
        std::vector<TokenId> tokens;
        for (int i = 0; i < context; ++i) tokens.push_back(1000 + (i * 7919) % 40000);
        must(target_->prefill(*exec_, cache, tokens, {}, prefilled_));
        weights_.lm_head = &target_->lm_head();
        weights_.vocab = target_->config().vocab;
        weights_.hidden = target_->config().hidden;
        cache_ = std::make_unique<KvCache>(std::move(cache));
    }

    Timed make(const std::string& text) {
        Timed timed;
        timed.name = text;
        const HeadSpec spec = must(parse_head_spec(text));
        HeadArtefacts artefacts;
        const std::string folder = std::string(DS_SOURCE_DIR) + "/assets/heads/";
        artefacts.ranking_path = folder + "demo_ranking.safetensors";
        if (const HeadInfo* info = find_head(spec.id); info != nullptr && info->need == ArtefactNeed::fitted)
            artefacts.artefact_path = folder + options_.drafter + "/" + spec.id + ".safetensors";
        timed.indexed = spec.id == "specvocab";
        timed.head = must(make_head(spec, artefacts));
        must(timed.head->prepare(*exec_, weights_));
        return timed;
    }

    void round(Timed& timed, int number) {
        // The weights of the target's layers take the caches.
        const TokenId token = 1234;
        const SequenceRows sequence{cache_.get(), {&token, 1}, {}, nullptr};
        must(target_->forward(*exec_, {{&sequence, 1}, {}, {}, true}, out_));
        PhaseRecorder phases;
        std::vector<SpanEvent> events;
        const std::unique_ptr<HeadState> state = timed.head->make_state();
        const std::vector<HeadState*> states(static_cast<std::size_t>(std::max(options_.rows, 1)),
                                             state.get());
        ProposeContext context_of{*exec_, phases, 0};
        timed.head->begin_round(context_of, {states.data(), 1});
        double whole = 0, bytes = 0;
        for (int level = 0; level < levels; ++level) {
            const int rows = level == 0 ? 1 : options_.rows;
            const int first = (number * 13 + level * 4) % (context - rows);
            const Rows<const float> hidden(prefilled_.hidden.data() + std::ptrdiff_t{first} * weights_.hidden,
                                           rows, weights_.hidden);
            ProposeContext with{*exec_, phases, level};
            const TimeNs start = monotonic_ns();
            timed.head->propose(with, hidden, {states.data(), static_cast<std::size_t>(rows)}, 10, proposal_);
            whole += static_cast<double>(monotonic_ns() - start) / 1e3;
            bytes += static_cast<double>(timed.head->cost_at(state.get(), rows, level).bytes);
        }
        phases.drain(events);
        const double us_per_tick = TickScale::calibrate().ns_per_tick() / 1e3;
        std::map<std::string, double> spent;
        for (const SpanEvent& event : events) {
            if (timed.indexed && event.phase == Phase::head)
                timed.scattered += static_cast<double>(event.bytes);
            spent[std::string(phase_table()[static_cast<std::size_t>(event.phase)].name)] +=
                static_cast<double>(event.end_ticks - event.start_ticks) * us_per_tick;
        }
        for (const auto& [phase, us] : spent) timed.phases[phase].push_back(us);
        timed.whole.push_back(whole);
        timed.bytes += bytes;
    }

    const kernels::Matrix& lm_head() const { return target_->lm_head(); }
    kernels::Exec& exec() { return *exec_; }

  private:
    const Options& options_;
    std::unique_ptr<kernels::Exec> exec_;
    std::unique_ptr<Target> target_;
    std::unique_ptr<KvCache> cache_;
    HeadWeights weights_;
    ForwardOutput prefilled_, out_;
    Proposal proposal_;
};

void run(const Options& options) {
    Rounds rounds(options);
    std::vector<Timed> heads;
    for (std::size_t first = 0; first < options.heads.size();) {
        const std::size_t end = std::min(options.heads.find(';', first), options.heads.size());
        heads.push_back(rounds.make(options.heads.substr(first, end - first)));
        first = end + 1;
    }
    for (int i = 0; i < options.rounds; ++i)
        for (Timed& timed : heads) rounds.round(timed, i);
    const int megabytes = std::max(1, static_cast<int>(rounds.lm_head().bytes() >> 20));
    const auto row_bytes =
        static_cast<int>(kernels::RowStore::make(rounds.exec(), rounds.lm_head()).row_bytes());
    const double stream = probe_read_bandwidth(options.threads, megabytes);
    const double scattered = probe_scattered_bandwidth(options.threads, megabytes, row_bytes);
    std::printf(
        "%d threads, %s, M 1 and %d; probes over %d MiB: one stream %.1f GB/s, scattered rows of %d "
        "bytes %.1f GB/s\n",
        options.threads, std::string(kernels::to_text(options.precision)).c_str(), options.rows, megabytes,
        stream, row_bytes, scattered);
    std::printf("%-22s %9s %9s %7s %7s %8s %7s %7s %9s   best us by phase\n", "head", "median us", "best us",
                "share", "best", "kB", "GB/s", "x bytes", "x probes");
    const double full = middle(heads.front().whole), full_best = least(heads.front().whole);
    const double full_bytes = heads.front().bytes / options.rounds;
    for (const Timed& timed : heads) {
        const double us = middle(timed.whole), best = least(timed.whole),
                     bytes = timed.bytes / options.rounds;
        std::string parts;
        for (const auto& [phase, times] : timed.phases)
            parts += fmt::format(" {} {:.0f}", phase, least(times));
        const double rows_read = timed.scattered / options.rounds;
        const double explained = ((bytes - rows_read) / stream + rows_read / scattered) / 1e3;
        std::printf("%-22s %9.0f %9.0f %7.3f %7.3f %8.0f %7.1f %7.2f %9.2f  %s\n", timed.name.c_str(), us,
                    best, us / full, best / full_best, bytes / 1e3, bytes / best / 1e3,
                    best / full_best * full_bytes / bytes, best / explained, parts.c_str());
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
