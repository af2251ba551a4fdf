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
#include "tests/support/demo_model.h"

/// What one round of draft-head calls costs, of several heads in turns: one row, then three levels of four,
/// after a target pass that leaves other weights in the caches, as in a decode loop. Hidden rows are the
/// target's own. Best and median of the rounds, whole and by phase, and each head's share of the full head.
/// Arguments: threads=N rounds=N precision=int8 heads=full;slimspec;specvocab (semicolons between).
namespace draftscope {
namespace {

constexpr int context = 192;
constexpr int level_rows[] = {1, 4, 4, 4};

struct Options {
    int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    int rounds = 60;
    kernels::Precision precision = kernels::Precision::int8;
    std::string heads = "full;slimspec;specvocab";
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
    double bytes = 0;  ///< a round
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
        : exec_(kernels::make_cpu_exec(options.threads)),
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
            artefacts.artefact_path = folder + "eagle3/" + spec.id + ".safetensors";
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
        HeadState* const states[] = {state.get(), state.get(), state.get(), state.get()};
        ProposeContext context_of{*exec_, phases, 0};
        timed.head->begin_round(context_of, {states, 1});
        double whole = 0, bytes = 0;
        for (int level = 0; level < static_cast<int>(std::size(level_rows)); ++level) {
            const int rows = level_rows[level];
            const int first = (number * 13 + level * 4) % (context - rows);
            const Rows<const float> hidden(prefilled_.hidden.data() + std::ptrdiff_t{first} * weights_.hidden,
                                           rows, weights_.hidden);
            ProposeContext with{*exec_, phases, level};
            const TimeNs start = monotonic_ns();
            timed.head->propose(with, hidden, {states, static_cast<std::size_t>(rows)}, 10, proposal_);
            whole += static_cast<double>(monotonic_ns() - start) / 1e3;
            bytes += static_cast<double>(timed.head->cost_at(state.get(), rows, level).bytes);
        }
        phases.drain(events);
        const double us_per_tick = TickScale::calibrate().ns_per_tick() / 1e3;
        std::map<std::string, double> spent;
        for (const SpanEvent& event : events)
            spent[std::string(phase_table()[static_cast<std::size_t>(event.phase)].name)] +=
                static_cast<double>(event.end_ticks - event.start_ticks) * us_per_tick;
        for (const auto& [phase, us] : spent) timed.phases[phase].push_back(us);
        timed.whole.push_back(whole);
        timed.bytes += bytes;
    }

  private:
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
    std::printf("%-22s %9s %9s %7s %7s %8s %7s %7s   best us by phase\n", "head", "median us", "best us",
                "share", "best", "kB", "GB/s", "x bytes");
    const double full = middle(heads.front().whole), full_best = least(heads.front().whole);
    const double full_bytes = heads.front().bytes / options.rounds;
    for (const Timed& timed : heads) {
        const double us = middle(timed.whole), best = least(timed.whole),
                     bytes = timed.bytes / options.rounds;
        std::string parts;
        for (const auto& [phase, times] : timed.phases)
            parts += fmt::format(" {} {:.0f}", phase, least(times));
        std::printf("%-22s %9.0f %9.0f %7.3f %7.3f %8.0f %7.1f %7.2f  %s\n", timed.name.c_str(), us, best,
                    us / full, best / full_best, bytes / 1e3, bytes / best / 1e3,
                    best / full_best * full_bytes / bytes, parts.c_str());
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
        } else if (name == "heads" && !value.empty()) {
            options.heads = value;
        } else if (name == "precision" && precision) {
            options.precision = *precision;
        } else {
            std::fprintf(stderr, "%s: expected threads=N rounds=N precision=f32|bf16|int8|int4 heads=A;B\n",
                         argv[i]);
            return 2;
        }
    }
    draftscope::run(options);
    return 0;
}
