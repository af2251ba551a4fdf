#include "app/jobs/sweep/sweep_about.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/jobs/resolve/resolve.h"
#include "app/jobs/sweep/pricing.h"
#include "base/format_count.h"

namespace draftscope {
namespace {

using nlohmann::json;

/// Sets `to` to a member, unless it is missing or of another type.
template <typename T>
void read(const json& from, const char* member, T& to) {
    const auto found = from.find(member);
    if (found == from.end()) return;
    try {
        to = found->get<T>();
    } catch (const json::exception&) {  // the library has no other way to say so
        return;
    }
}

/// Continuing a sweep predicts the times again; tau and speeds are for readers of the file.
json oracle_json(const OracleLine& line) {
    return {{"drafters", line.drafters},
            {"head", line.head},
            {"batch", line.batch},
            {"levels", line.levels},
            {"weights", line.weights},
            {"rounds", line.rounds},
            {"positions", line.positions},
            {"tau", line.tau()},
            {"tokens_per_second", line.tokens_per_second()},
            {"speedup", line.speedup()},
            {"round_ms", line.round_ms},
            {"plain_ms", line.plain_ms}};
}

/// Returns whether the counts are of as many drafters, with at least one round.
bool is_valid(const OracleLine& line) {
    constexpr std::size_t max_tokens = 1000;
    double sum = 0;
    for (const std::vector<double>& counts : line.rounds)
        for (const double count : counts) {
            if (!(count >= 0)) return false;
            sum += count;
        }
    if (!line.positions.empty() && !have_same_shape(line.positions, line.rounds)) return false;
    for (const std::vector<double>& sums : line.positions)
        for (const double sum_before : sums)
            if (!(sum_before >= 0)) return false;
    return !line.drafters.empty() && line.rounds.size() == line.drafters.size() && sum > 0 &&
           line.batch >= 1 &&
           std::ranges::all_of(line.rounds, [](const auto& counts) { return counts.size() < max_tokens; });
}

OracleLine to_oracle(const json& from) {
    OracleLine line;
    read(from, "drafters", line.drafters);
    read(from, "head", line.head);
    read(from, "batch", line.batch);
    read(from, "levels", line.levels);
    read(from, "weights", line.weights);
    read(from, "rounds", line.rounds);
    read(from, "positions", line.positions);
    read(from, "round_ms", line.round_ms);
    read(from, "plain_ms", line.plain_ms);
    return line;
}

std::string absolute_folder(const std::string& folder) {
    std::error_code error;
    const auto path = std::filesystem::absolute(folder, error);
    return error ? folder : path.lexically_normal().string();
}

}  // namespace

std::string costs_text(const MachineProfile& profile) {
    const std::string threads =
        profile.threads > 0 ? ", " + format_count(profile.threads, "thread") : std::string();
    return fmt::format("{} ({}{})", profile.machine.empty() ? profile.path : profile.machine,
                       to_text(profile.kind), threads);
}

SweepAbout describe_sweep(const SweepReport& report, const std::string& model) {
    SweepAbout about;
    about.context = report.context;
    for (const SweepSetting& one : report.settings)
        about.weights[pair_text(one.drafter, one.head)] = one.weights;
    about.oracles = report.oracles;
    about.recording = absolute_folder(report.recording);
    about.model = model;
    about.run.backend = report.profile.backend;
    about.run.precision = report.profile.precision;
    about.run.threads = report.profile.threads;
    about.run.artefacts = report.artefacts;
    about.costs = costs_text(report.profile);
    about.default_tree = default_tree(report.profile.backend);
    about.max_new = report.max_new;
    about.temperature = report.temperature;
    about.categories = report.categories;
    about.notes = report.estimates;
    about.notes.insert(about.notes.end(), report.skipped.begin(), report.skipped.end());
    return about;
}

json to_json(const SweepAbout& about) {
    json oracles = json::array();
    for (const OracleLine& line : about.oracles) oracles.push_back(oracle_json(line));
    json out = {{"context", {{"positions", about.context.positions}, {"tokens", about.context.tokens}}},
                {"weights", about.weights},
                {"oracles", std::move(oracles)},
                {"recording", about.recording},
                {"model", about.model},
                {"run",
                 {{"backend", about.run.backend},
                  {"precision", about.run.precision},
                  {"threads", about.run.threads},
                  {"head_weights", about.run.artefacts}}},
                {"costs", about.costs},
                {"default_tree", about.default_tree},
                {"max_new", about.max_new},
                {"temperature", about.temperature},
                {"categories", about.categories},
                {"notes", about.notes}};
    if (!about.advice.is_null()) out["advice"] = about.advice;
    return out;
}

SweepAbout parse_sweep_about(const std::string& text) {
    SweepAbout about;
    const json from = json::parse(text, nullptr, false);
    if (!from.is_object()) return about;
    read(from, "recording", about.recording);
    read(from, "model", about.model);
    read(from, "costs", about.costs);
    read(from, "default_tree", about.default_tree);
    read(from, "max_new", about.max_new);
    read(from, "temperature", about.temperature);
    read(from, "categories", about.categories);
    read(from, "notes", about.notes);
    read(from, "advice", about.advice);
    read(from, "weights", about.weights);
    if (const auto run = from.find("run"); run != from.end()) {
        read(*run, "backend", about.run.backend);
        read(*run, "precision", about.run.precision);
        read(*run, "threads", about.run.threads);
        read(*run, "head_weights", about.run.artefacts);
    }
    if (const auto context = from.find("context"); context != from.end()) {
        read(*context, "positions", about.context.positions);
        read(*context, "tokens", about.context.tokens);
    }
    if (const auto oracles = from.find("oracles"); oracles != from.end() && oracles->is_array())
        for (const json& one : *oracles)
            if (OracleLine line = to_oracle(one); is_valid(line)) about.oracles.push_back(std::move(line));
    return about;
}

}  // namespace draftscope
