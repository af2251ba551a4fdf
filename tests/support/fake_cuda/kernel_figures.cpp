#include "tests/support/fake_cuda/kernel_figures.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace draftscope::testing {
namespace {

std::map<std::string, KernelFigures> read_figures() {
    std::ifstream file(DS_SOURCE_DIR "/tools/sass_budgets.json");
    const auto budgets = nlohmann::json::parse(file, nullptr, false);
    std::map<std::string, KernelFigures> found;
    if (!budgets.is_object()) return found;
    for (const auto& [source, kernels] : budgets.at("files").items())
        for (const auto& [kernel, budget] : kernels.items())
            found[source + " " + kernel] = {
                .threads = budget.at("threads").get<int>(),
                .registers = budget.at("registers").get<int>(),
                .static_shared = budget.at("shared").get<std::size_t>(),
                .dynamic_shared = budget.at("dynamic").get<std::size_t>(),
            };
    return found;
}

/// Returns "head_kernel<4,1>" of "... = {anonymous}::head_kernel<Float16Kind::bf16, 4, 1>]". Both 16-bit
/// formats share their figures.
std::string short_name(std::string_view text) {
    constexpr std::string_view ending = "_kernel";
    const std::size_t at = text.rfind(ending);
    if (at == std::string_view::npos) return {};
    const std::size_t first = text.find_last_of(" :&", at) + 1, end = at + ending.size();
    std::string name(text.substr(first, end - first)), arguments;
    std::string_view rest = text.substr(end);
    if (!rest.starts_with('<')) return name;
    rest = rest.substr(1, rest.rfind('>') - 1);
    while (!rest.empty()) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        std::string one(rest.substr(0, comma));
        std::erase(one, ' ');
        if (one.find("Float16Kind") == std::string::npos) arguments += (arguments.empty() ? "" : ",") + one;
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return arguments.empty() ? name : name + "<" + arguments + ">";
}

}  // namespace

const std::map<std::string, KernelFigures>& kernel_figures() {
    static const std::map<std::string, KernelFigures> figures = read_figures();
    return figures;
}

std::optional<KernelFigures> find_kernel_figures(std::string_view path, std::string_view name) {
    const std::string key = std::string(path.substr(path.find_last_of('/') + 1)) + " " + short_name(name);
    if (const auto found = kernel_figures().find(key); found != kernel_figures().end()) return found->second;
    std::optional<KernelFigures> worst;
    for (const auto& [kernel, one] : kernel_figures()) {
        if (!kernel.starts_with(key + "<")) continue;
        if (!worst) worst = one;
        worst->registers = std::max(worst->registers, one.registers);
        worst->static_shared = std::max(worst->static_shared, one.static_shared);
    }
    return worst;
}

cudaError_t check_resources(const KernelFigures& figures, int threads, std::size_t dynamic, bool opted_in) {
    if (figures.static_shared > plain_shared_bytes ||
        figures.static_shared + dynamic > (opted_in ? max_shared_bytes : plain_shared_bytes))
        return cudaErrorInvalidConfiguration;
    // Each of the four parts of a multiprocessor has 16,384 registers and gives them to a warp in steps of
    // 256.
    const int warps = (threads + 31) / 32, each = (figures.registers * 32 + 255) / 256 * 256;
    if (each > 0 && 4 * (16384 / each) < warps) return cudaErrorLaunchOutOfResources;
    return cudaSuccess;
}

}  // namespace draftscope::testing
