#include "app/jobs/machine/probe_cache.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/user_folders.h"

namespace draftscope {
namespace {

namespace fs = std::filesystem;

fs::path cache_file() {
    const fs::path cache = cache_folder();
    return cache.empty() ? fs::path() : cache / "bandwidth.json";
}

}  // namespace

void save_probe(const std::string& cpu_name, const ProbedBandwidth& measured) {
    const fs::path path = cache_file();
    if (path.empty()) return;
    nlohmann::json stream = nlohmann::json::object(), scattered = stream;
    for (const auto& [count, reads] : measured) {
        stream[std::to_string(count)] = reads.stream;
        scattered[std::to_string(count)] = reads.scattered;
    }
    const nlohmann::json document = {
        {"cpu", cpu_name}, {"read_gb_per_s", stream}, {"scattered_read_gb_per_s", scattered}};
    if (!replace_file(path, document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace)))
        log_warning("{}: the bandwidth probe can't be saved", path.string());
}

ReadBandwidth load_probe(const std::string& cpu_name, int threads) {
    std::ifstream file(cache_file());
    if (!file) return {};
    const nlohmann::json document = nlohmann::json::parse(file, nullptr, false);
    if (!document.is_object() || document.value("cpu", nlohmann::json()) != cpu_name) return {};
    const auto number = [&](const char* key) {
        const auto table = document.find(key);
        if (table == document.end() || !table->is_object()) return 0.0;
        const auto found = table->find(std::to_string(threads));
        return found != table->end() && found->is_number() ? found->get<double>() : 0.0;
    };
    return {number("read_gb_per_s"), number("scattered_read_gb_per_s")};
}

}  // namespace draftscope
