#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/tokenizer/tokenizer.h"
#include "engine/transformer/target.h"
#include "kernels/packing.h"

/// Measures the loss of each precision relative to the f32 forward pass of the same weights. It prints KL
/// divergence and top-1 agreement per token over a text, for this engine and llama.cpp. Arguments: folder=DIR
/// (of make_peer_models.py), text=FILE, tokens=N, threads=N. Built by compare_llama.sh.
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
void for_each_window(Target& target, kernels::Backend& exec, const std::vector<TokenId>& text, auto use) {
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

void for_each_window(llama_model* model, int threads, const std::vector<TokenId>& text, auto use) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = window;
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
    void print(const char* who, const char* type) const {
        std::printf("%-10s %-6s  KL %.6f  top-1 %.2f %%\n", who, type, divergence / static_cast<double>(rows),
                    100.0 * static_cast<double>(agreed) / static_cast<double>(rows));
        std::fflush(stdout);
    }
};

}  // namespace
}  // namespace draftscope

int main(int argc, char** argv) {
    using namespace draftscope;
    const std::string folder = argument(argc, argv, "folder", "");
    const std::string file =
        argument(argc, argv, "text", std::string(DS_SOURCE_DIR) + "/assets/prompts/spec_bench_half.jsonl");
    const int threads = std::max(1, std::atoi(argument(argc, argv, "threads", "2").c_str()));
    const auto max_tokens =
        static_cast<std::size_t>(std::max(window, std::atoi(argument(argc, argv, "tokens", "8192").c_str())));
    if (folder.empty()) fail("folder=DIR is missing");
    std::ifstream in(file);
    std::stringstream content;
    content << in.rdbuf();
    if (content.str().empty()) fail(file + ": empty or missing");
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_backend_init();

    const auto exec = kernels::make_cpu_backend(threads);
    const auto reference = load(folder + "/demo.f32.gguf", Precision::f32, *exec);
    std::vector<TokenId> text =
        reference->tokenizer()->encode(content.str().substr(0, max_tokens * 8), false);
    if (text.size() > max_tokens) text.resize(max_tokens);
    const int vocab = reference->config().vocab;
    std::vector<std::vector<float>> expected;
    for_each_window(*reference, *exec, text, [&](std::size_t, const float* logits) {
        expected.emplace_back(logits, logits + static_cast<std::ptrdiff_t>(window) * vocab);
    });
    std::printf("%zu tokens of %s in windows of %d; reference: f32\n", expected.size() * window, file.c_str(),
                window);
    const struct {
        const char* type;
        Precision precision;
    } pairs[] = {{"q8_0", Precision::int8}, {"q4_0", kernels::Precision::int4}, {"bf16", Precision::bf16}};
    for (const auto& [type, precision] : pairs) {
        const std::string path = folder + "/demo." + type + ".gguf";
        // Four-bit weights differ from the f32 ones, so their dequantised values are a second reference.
        std::vector<std::vector<float>> exact;
        if (precision == kernels::Precision::int4) {
            const auto same = load(path, Precision::f32, *exec);
            for_each_window(*same, *exec, text, [&](std::size_t, const float* logits) {
                exact.emplace_back(logits, logits + static_cast<std::ptrdiff_t>(window) * vocab);
            });
        }
        Loss ours, theirs, ours_alone, theirs_alone;
        const auto add = [&](Loss& loss, Loss& alone) {
            return [&](std::size_t w, const float* logits) {
                for (int r = 0; r < window; ++r) {
                    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(r) * vocab;
                    loss.add(expected[w].data() + at, logits + at, vocab);
                    if (!exact.empty()) alone.add(exact[w].data() + at, logits + at, vocab);
                }
            };
        };
        {
            const auto target = load(path, precision, *exec);
            for_each_window(*target, *exec, text, add(ours, ours_alone));
        }
        llama_model* model = llama_model_load_from_file(path.c_str(), llama_model_default_params());
        if (model == nullptr) fail(path + ": llama.cpp can't load the file");
        for_each_window(model, threads, text, add(theirs, theirs_alone));
        llama_model_free(model);
        ours.print("ours", kernels::to_text(precision).data());
        theirs.print("llama.cpp", type);
        if (exact.empty()) continue;
        std::printf("  against the f32 forward of the same four-bit weights:\n");
        ours_alone.print("  ours", kernels::to_text(precision).data());
        theirs_alone.print("  llama.cpp", type);
    }
    llama_backend_free();
    return 0;
}
