#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/transformer/target.h"
#include "kernels/packing.h"
#include "profiler/machine/machine.h"

/// Compares the demo target with llama.cpp on the same file, alternating in one process: theirs, ours, ours,
/// theirs. Arguments: folder=DIR (of tests/bench/make_peer_models.py), rounds=N, threads=N, type=q8_0, q4_0
/// or bf16, only=decode for the first row of each, clock=cpu for processor time (one thread). Built by
/// tests/bench/compare_llama.sh.
namespace draftscope {
namespace {

using kernels::Precision;

constexpr int context_length = 128;  ///< tokens before a timed step
constexpr int prompt_length = 512;

struct Settings {
    std::string folder;
    std::string type;  ///< llama.cpp's weight type; "" = all
    int rounds = 5;
    bool decode_only = false;  ///< runs only the first row of each type
    int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
};

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "compare_llama: %s\n", what.c_str());
    std::exit(2);
}
void must(const Status& status) {
    if (!status.ok()) fail(status.error().message);
}

TokenId some_token(int i) {
    return 1000 + (i * 7919) % 40000;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// Uses processor time instead of wall time, for one thread on a shared machine.
bool processor_time = false;

double now_ms() {
    timespec now{};
    clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

/// Median milliseconds of `steps` calls.
template <typename Step>
double measure(int steps, Step step) {
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) {
        const double start = now_ms();
        step(i);
        times.push_back(now_ms() - start);
    }
    return median(times);
}

class Ours {
  public:
    Ours(const std::string& path, Precision precision, kernels::Backend& exec) : exec_(exec) {
        auto loaded = Target::load(path, exec, precision);
        if (!loaded.ok()) fail(loaded.error().message);
        target_ = std::move(loaded).value();
    }
    /// Extends `sequences` sequences of context_length tokens by one token per step.
    double decode(int sequences, int steps) {
        std::vector<KvCache> caches;
        std::vector<TokenId> prompt;
        for (int i = 0; i < context_length; ++i) prompt.push_back(some_token(i));
        for (int s = 0; s < sequences; ++s) {
            caches.push_back(target_->make_cache(context_length + steps + 1));
            must(target_->prefill(caches.back(), prompt, {}, out_));
        }
        std::vector<TokenId> tokens(static_cast<std::size_t>(sequences));
        std::vector<SequenceTokens> rows(tokens.size());
        return measure(steps, [&](int step) {
            for (std::size_t s = 0; s < tokens.size(); ++s) {
                tokens[s] = some_token(static_cast<int>(s) * 31 + step);
                rows[s] = {&caches[s], {&tokens[s], 1}, {}, nullptr};
            }
            must(target_->forward({rows, {}, {}, true}, out_));
            for (KvCache& cache : caches) cache.commit(1);
        });
    }
    /// Verifies a tree of `nodes` rows after one context; keeps none of them.
    double verify(int nodes, int steps) {
        KvCache cache = target_->make_cache(context_length + nodes);
        std::vector<TokenId> prompt, tokens;
        for (int i = 0; i < context_length; ++i) prompt.push_back(some_token(i));
        for (int i = 0; i < nodes; ++i) tokens.push_back(some_token(i + 7));
        must(target_->prefill(cache, prompt, {}, out_));
        const SequenceTokens rows{&cache, tokens, {}, nullptr};
        return measure(steps, [&](int) { must(target_->forward({{&rows, 1}, {}, {}, true}, out_)); });
    }
    double prefill(int steps) {
        KvCache cache = target_->make_cache(prompt_length);
        std::vector<TokenId> prompt;
        for (int i = 0; i < prompt_length; ++i) prompt.push_back(some_token(i));
        return measure(steps, [&](int) {
            cache.clear();
            must(target_->prefill(cache, prompt, {}, out_));
        });
    }

    /// Bytes that the last step read: weights, keys and values.
    double bytes() const { return static_cast<double>(out_.bytes); }

  private:
    kernels::Backend& exec_;
    std::unique_ptr<Target> target_;
    ForwardOutput out_;
};

class Theirs {
  public:
    Theirs(const std::string& path, int threads) : threads_(threads) {
        llama_model_params params = llama_model_default_params();
        params.n_gpu_layers = 0;
        model_ = llama_model_load_from_file(path.c_str(), params);
        if (model_ == nullptr) fail(path + ": llama.cpp can't load the file");
    }
    ~Theirs() { llama_model_free(model_); }
    Theirs(const Theirs&) = delete;
    Theirs& operator=(const Theirs&) = delete;

    double decode(int sequences, int steps) {
        Context context(*this, sequences, context_length + steps + 1);
        for (int s = 0; s < sequences; ++s) {
            context.clear();
            for (int i = 0; i < context_length; ++i)
                context.add(some_token(i), i, s, i + 1 == context_length);
            context.run();
        }
        return measure(steps, [&](int step) {
            context.clear();
            for (int s = 0; s < sequences; ++s)
                context.add(some_token(s * 31 + step), context_length + step, s, true);
            context.run();
        });
    }
    double verify(int nodes, int steps) {
        Context context(*this, 1, context_length + nodes);
        for (int i = 0; i < context_length; ++i) context.add(some_token(i), i, 0, i + 1 == context_length);
        context.run();
        std::vector<double> times;
        for (int step = 0; step < steps; ++step) {
            llama_memory_seq_rm(llama_get_memory(context.get()), 0, context_length, -1);
            context.clear();
            for (int i = 0; i < nodes; ++i) context.add(some_token(i + 7), context_length + i, 0, true);
            times.push_back(measure(1, [&](int) { context.run(); }));
        }
        return median(times);
    }
    double prefill(int steps) {
        Context context(*this, 1, prompt_length);
        std::vector<double> times;
        for (int step = 0; step < steps; ++step) {
            llama_memory_clear(llama_get_memory(context.get()), true);
            context.clear();
            for (int i = 0; i < prompt_length; ++i) context.add(some_token(i), i, 0, i + 1 == prompt_length);
            times.push_back(measure(1, [&](int) { context.run(); }));
        }
        return median(times);
    }

  private:
    class Context {
      public:
        Context(const Theirs& owner, int sequences, int length) {
            llama_context_params params = llama_context_default_params();
            params.n_ctx = static_cast<std::uint32_t>(sequences * std::max(length, 256));
            params.n_batch = prompt_length;
            params.n_ubatch = prompt_length;
            params.n_seq_max = static_cast<std::uint32_t>(sequences);
            params.n_threads = owner.threads_;
            params.n_threads_batch = owner.threads_;
            context_ = llama_init_from_model(owner.model_, params);
            if (context_ == nullptr) fail("llama.cpp can't create a context");
            batch_ = llama_batch_init(prompt_length, 0, 1);
        }
        ~Context() {
            llama_batch_free(batch_);
            llama_free(context_);
        }
        Context(const Context&) = delete;
        Context& operator=(const Context&) = delete;
        llama_context* get() { return context_; }
        void clear() { batch_.n_tokens = 0; }
        void add(TokenId token, int position, int sequence, bool logits) {
            const int i = batch_.n_tokens++;
            batch_.token[i] = token;
            batch_.pos[i] = position;
            batch_.n_seq_id[i] = 1;
            batch_.seq_id[i][0] = sequence;
            batch_.logits[i] = logits ? 1 : 0;
        }
        void run() {
            if (llama_decode(context_, batch_) != 0) fail("llama_decode failed");
        }

      private:
        llama_context* context_ = nullptr;
        llama_batch batch_{};
    };

    llama_model* model_ = nullptr;
    int threads_;
};

/// Calls on a separate thread, because llama.cpp sets up AMX tiles once per thread, and ours are released.
template <typename Call>
double apart(Call call) {
    double result = 0;
    std::thread([&] { result = call(); }).join();
    return result;
}

/// Times two sides in ABBA order, so that both see the same machine state.
struct Turns {
    std::vector<double> first, second;
    std::vector<double> ratios;  ///< ratios first / second of the rounds, ascending
    template <typename A, typename B>
    Turns(int rounds, A a, B b) {
        // The workers of each side spin for a while after a call.
        const auto settle = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
        for (int r = 0; r < rounds; ++r) {
            first.push_back(a());
            settle();
            second.push_back(b());
            second.push_back(b());
            settle();
            first.push_back(a());
            settle();
            const auto sum = [](const std::vector<double>& times) {
                return times.end()[-1] + times.end()[-2];
            };
            ratios.push_back(sum(first) / sum(second));
        }
        std::sort(ratios.begin(), ratios.end());
    }
    void print_ratio() const {
        std::printf(" %8.2f   %.2f .. %.2f\n", median(ratios), ratios[ratios.size() / 4],
                    ratios[3 * ratios.size() / 4]);
        std::fflush(stdout);
    }
};

/// Prints medians and quartiles of the rounds' ratios. Returns our median.
template <typename A, typename B>
double compare(const std::string& what, int rounds, A theirs, B ours) {
    const Turns turns(rounds, theirs, [&] { return apart(ours); });
    std::printf("%-28s %10.3f %10.3f", what.c_str(), median(turns.first), median(turns.second));
    turns.print_ratio();
    return median(turns.second);
}

/// Prints our time of m rows relative to one row, measured together because the machine's speed drifts.
void print_growth(const Settings& settings, Ours& ours, int m) {
    const Turns turns(
        settings.rounds, [&] { return apart([&] { return ours.verify(m, 12); }); },
        [&] { return apart([&] { return ours.verify(1, 24); }); });
    std::printf("%-28s %21s", ("  ours t(" + std::to_string(m) + ")/t(1)").c_str(), "");
    turns.print_ratio();
}

/// Compares decoding with the machine's read bandwidth: repeated reads of the same bytes, which caches may
/// partly hold, and reads from memory only.
void print_share(const Settings& settings, double bytes, double ms, double memory) {
    constexpr double mebibyte = 1 << 20;
    const double same = probe_read_bandwidth(settings.threads, static_cast<int>(bytes / mebibyte));
    const double reached = bytes / (ms * 1e6);
    std::printf(
        "  ours reads %.1f MB, %.1f GB/s: %.0f %% of %.1f GB/s (as many bytes), %.0f %% of memory's\n",
        bytes * 1e-6, reached, 100 * reached / same, same, 100 * reached / memory);
    std::fflush(stdout);
}

struct Pair {
    const char* file;
    const char* type;
    Precision precision;
};

void run(const Settings& settings, const std::vector<Pair>& pairs) {
    const auto exec = kernels::make_cpu_backend(settings.threads);
    std::printf("threads %d, kernels %s, llama.cpp: %s\n", settings.threads,
                std::string(kernels::to_text(exec->pool().isa())).c_str(), llama_print_system_info());
    if (processor_time && settings.threads > 1) fail("clock=cpu: only with threads=1");
    const double memory = probe_read_bandwidth(settings.threads, memory_probe_megabytes());
    std::printf("reads before: %.1f GB/s from memory (%d MiB), %.1f GB/s from the cache\n\n", memory,
                memory_probe_megabytes(),
                probe_read_bandwidth(settings.threads, settings.threads * cached_probe_megabytes));
    std::printf("%-28s %10s %10s %8s   %s\n", "ms", "llama.cpp", "ours", "ratio", "middle half");
    for (const Pair& pair : pairs) {
        if (!settings.type.empty() && settings.type != pair.type) continue;
        const std::string path = settings.folder + "/" + pair.file;
        Ours ours(path, pair.precision, *exec);
        Theirs theirs(path, settings.threads);
        const std::string name = std::string(kernels::to_text(pair.precision)) + " / " + pair.type;
        const auto row = [&](const std::string& what, auto call) {
            return compare(
                name + " " + what, settings.rounds, [&] { return call(theirs); }, [&] { return call(ours); });
        };
        const double one = row("decode", [](auto& side) { return side.decode(1, 24); });
        print_share(settings, ours.bytes(), one, memory);
        if (settings.decode_only) continue;
        for (const int m : {4, 8, 12}) {
            row("verify M=" + std::to_string(m), [m](auto& side) { return side.verify(m, 12); });
            print_growth(settings, ours, m);
        }
        for (const int m : {8, 16})
            row("batch " + std::to_string(m), [m](auto& side) { return side.decode(m, 8); });
        row("prefill 512", [](auto& side) { return side.prefill(2); });
    }
    std::printf("\nreads after: %.1f GB/s from memory\n",
                probe_read_bandwidth(settings.threads, memory_probe_megabytes()));
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using namespace draftscope;
    Settings settings;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.rfind("folder=", 0) == 0) settings.folder = argument.substr(7);
        if (argument.rfind("type=", 0) == 0) settings.type = argument.substr(5);
        if (argument.rfind("rounds=", 0) == 0) settings.rounds = std::max(1, std::atoi(argv[i] + 7));
        if (argument.rfind("threads=", 0) == 0) settings.threads = std::max(1, std::atoi(argv[i] + 8));
        if (argument == "clock=cpu") processor_time = true;
        if (argument == "only=decode") settings.decode_only = true;
    }
    if (settings.folder.empty()) fail("folder=DIR is missing");
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_backend_init();
    run(settings, {{"demo.q8_0.gguf", "q8_0", Precision::int8},
                   {"demo.q4_0.gguf", "q4_0", kernels::Precision::int4},
                   {"demo.bf16.gguf", "bf16", Precision::bf16}});
    llama_backend_free();
    return 0;
}
