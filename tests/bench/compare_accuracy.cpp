#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "engine/transformer/target.h"
#include "kernels/packing.h"

/// Measures the loss of each precision relative to the f32 forward pass of the same weights. It prints KL
/// divergence and top-1 agreement per token over a text, for this engine and llama.cpp. Arguments: folder=DIR
/// (of make_peer_models.py) or model=FILE.gguf, text=FILE, tokens=N, threads=N, ubatch=N (rows that llama.cpp
/// computes at once; ours do not depend on it). Built by compare_llama.sh.
/// - folder=DIR compares the types of its files with each other.
/// - model=FILE compares int8 and int4 of one file with llama.cpp on it. The reference is this engine's f32
///   forward pass of the file's dequantised weights.
namespace draftscope {
namespace {

using kernels::Precision;

constexpr int window = 256;  ///< length of the attention context

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "compare_accuracy: %s\n", what.c_str());
    std::exit(2);
}

std::string argument(int argc, char** argv, const std::string& name, const std::string& otherwise) {
    for (int i = 1; i < argc; ++i)
        if (std::string(argv[i]).rfind(name + "=", 0) == 0)
            return std::string(argv[i]).substr(name.size() + 1);
    return otherwise;
}

std::unique_ptr<Target> load(const std::string& path, Precision precision, kernels::Backend& exec) {
    auto loaded = Target::load(path, exec, precision);
    if (!loaded.ok()) fail(loaded.error().message);
    return std::move(loaded).value();
}

/// Computes logits [window, V] for consecutive windows of the text. It runs on a separate thread, because
/// llama.cpp sets up AMX tiles once per thread, and ours are released.
void for_each_window(Target& target, const std::vector<TokenId>& text, auto use) {
    std::thread([&] {
        ForwardOutput out;
        KvCache cache = target.make_cache(window);
        for (std::size_t first = 0; first + window <= text.size(); first += window) {
            cache.clear();
            const SequenceTokens rows{&cache, {text.data() + first, window}, {}, nullptr};
            const Status status = target.forward({{&rows, 1}, {}, {}, true}, out);
            if (!status.ok()) fail(status.error().message);
            use(first / window, out.logits.data());
        }
    }).join();
}

void for_each_window(llama_model* model, int threads, int rows, const std::vector<TokenId>& text, auto use) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = window;
    params.n_ubatch = static_cast<std::uint32_t>(rows);
    params.n_threads = params.n_threads_batch = threads;
    llama_context* context = llama_init_from_model(model, params);
    if (context == nullptr) fail("llama.cpp can't create a context");
    llama_batch batch = llama_batch_init(window, 0, 1);
    for (std::size_t first = 0; first + window <= text.size(); first += window) {
        llama_memory_clear(llama_get_memory(context), true);
        batch.n_tokens = window;
        for (int i = 0; i < window; ++i) {
            batch.token[i] = text[first + static_cast<std::size_t>(i)];
            batch.pos[i] = i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_decode(context, batch) != 0) fail("llama_decode failed");
        use(first / window, llama_get_logits(context));
    }
    llama_batch_free(batch);
    llama_free(context);
}

/// Sums over logit rows compared with the reference.
struct Loss {
    double divergence = 0;
    long agreed = 0, rows = 0;

    void add(const float* reference, const float* found, int vocab) {
        const auto normaliser = [vocab](const float* x) {
            const double top = *std::max_element(x, x + vocab);
            double sum = 0;
            for (int i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(x[i]) - top);
            return top + std::log(sum);
        };
        const double a = normaliser(reference), b = normaliser(found);
        for (int i = 0; i < vocab; ++i) {
            const double p = static_cast<double>(reference[i]) - a, q = static_cast<double>(found[i]) - b;
            divergence += std::exp(p) * (p - q);
        }
        const auto best = [vocab](const float* x) { return std::max_element(x, x + vocab) - x; };
        agreed += best(reference) == best(found) ? 1 : 0;
        ++rows;
    }
    void print(const char* who, std::string_view type) const {
        std::printf("%-10s %-6s  KL %.6f  top-1 %.2f %%\n", who, std::string(type).c_str(),
                    divergence / static_cast<double>(rows),
                    100.0 * static_cast<double>(agreed) / static_cast<double>(rows));
        std::fflush(stdout);
    }
};

/// Logits [window, V] of each window.
using Windows = std::vector<std::vector<float>>;

struct Settings {
    std::string folder, model;
    int threads = 2;
    int peer_rows = window;  ///< of llama.cpp's products
    std::vector<TokenId> text;
    int vocab = 0;
};

Windows reference_logits(Target& target, const Settings& settings) {
    Windows windows;
    for_each_window(target, settings.text, [&](std::size_t, const float* logits) {
        windows.emplace_back(logits, logits + static_cast<std::ptrdiff_t>(window) * settings.vocab);
    });
    return windows;
}

/// Adds each row's loss against every reference.
auto add_to(const Settings& settings, std::vector<std::pair<const Windows*, Loss*>> losses) {
    return [&settings, losses](std::size_t w, const float* logits) {
        for (int r = 0; r < window; ++r) {
            const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(r) * settings.vocab;
            for (const auto& [expected, loss] : losses)
                loss->add((*expected)[w].data() + at, logits + at, settings.vocab);
        }
    };
}

void measure_ours(const std::string& path, Precision precision, kernels::Backend& exec,
                  const Settings& settings, auto add) {
    const auto target = load(path, precision, exec);
    for_each_window(*target, settings.text, add);
}

void measure_theirs(const std::string& path, const Settings& settings, auto add) {
    llama_model* model = llama_model_load_from_file(path.c_str(), llama_model_default_params());
    if (model == nullptr) fail(path + ": llama.cpp can't load the file");
    if (llama_vocab_n_tokens(llama_model_get_vocab(model)) != settings.vocab)
        fail(path + ": llama.cpp has another number of logits");
    for_each_window(model, settings.threads, settings.peer_rows, settings.text, add);
    llama_model_free(model);
}

void compare_file(const Settings& settings, const Windows& expected, kernels::Backend& exec) {
    for (const Precision precision : {Precision::int8, Precision::int4}) {
        Loss ours;
        measure_ours(settings.model, precision, exec, settings, add_to(settings, {{&expected, &ours}}));
        ours.print("ours", kernels::to_text(precision));
    }
    Loss theirs;
    measure_theirs(settings.model, settings, add_to(settings, {{&expected, &theirs}}));
    theirs.print("llama.cpp", "file");
}

void compare_types(const Settings& settings, const Windows& expected, kernels::Backend& exec) {
    const struct {
        const char* type;
        Precision precision;
    } pairs[] = {{"q8_0", Precision::int8}, {"q4_0", Precision::int4}, {"bf16", Precision::bf16}};
    for (const auto& [type, precision] : pairs) {
        const std::string path = settings.folder + "/demo." + type + ".gguf";
        // Four-bit weights differ from the f32 ones, so their dequantised values are a second reference.
        Windows exact;
        Loss ours, theirs, ours_alone, theirs_alone;
        std::vector<std::pair<const Windows*, Loss*>> to_ours = {{&expected, &ours}},
                                                      to_theirs = {{&expected, &theirs}};
        if (precision == Precision::int4) {
            exact = reference_logits(*load(path, Precision::f32, exec), settings);
            to_ours.emplace_back(&exact, &ours_alone);
            to_theirs.emplace_back(&exact, &theirs_alone);
        }
        measure_ours(path, precision, exec, settings, add_to(settings, to_ours));
        measure_theirs(path, settings, add_to(settings, to_theirs));
        ours.print("ours", kernels::to_text(precision));
        theirs.print("llama.cpp", type);
        if (exact.empty()) continue;
        std::printf("  against the f32 forward of the same four-bit weights:\n");
        ours_alone.print("  ours", kernels::to_text(precision));
        theirs_alone.print("  llama.cpp", type);
    }
}

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using namespace draftscope;
    Settings settings;
    settings.folder = argument(argc, argv, "folder", "");
    settings.model = argument(argc, argv, "model", "");
    settings.threads = std::max(1, std::atoi(argument(argc, argv, "threads", "2").c_str()));
    settings.peer_rows = std::clamp(std::atoi(argument(argc, argv, "ubatch", "256").c_str()), 1, window);
    const std::string file =
        argument(argc, argv, "text", std::string(DS_SOURCE_DIR) + "/assets/prompts/spec_bench_half.jsonl");
    const auto max_tokens =
        static_cast<std::size_t>(std::max(window, std::atoi(argument(argc, argv, "tokens", "8192").c_str())));
    if (settings.folder.empty() && settings.model.empty()) fail("folder=DIR or model=FILE is missing");
    std::ifstream in(file);
    std::stringstream content;
    content << in.rdbuf();
    if (content.str().empty()) fail(file + ": empty or missing");
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_backend_init();

    const auto exec = kernels::make_cpu_backend(settings.threads);
    const std::string path = settings.model.empty() ? settings.folder + "/demo.f32.gguf" : settings.model;
    auto reference = load(path, Precision::f32, *exec);
    settings.text = reference->tokenizer()->encode(content.str().substr(0, max_tokens * 8), false);
    if (settings.text.size() > max_tokens) settings.text.resize(max_tokens);
    settings.vocab = reference->config().vocab;
    const Windows expected = reference_logits(*reference, settings);
    reference.reset();
    std::printf("%zu tokens of %s in windows of %d; reference: f32 of %s\n", expected.size() * window,
                file.c_str(), window, path.c_str());
    if (settings.model.empty())
        compare_types(settings, expected, *exec);
    else
        compare_file(settings, expected, *exec);
    llama_backend_free();
    return 0;
}
