#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <tuple>

#include "app/jobs/run/pool.h"
#include "app/jobs/sweep/pricing.h"
#include "app/jobs/sweep/saved_sweep.h"
#include "app/jobs/sweep/sweep_job.h"
#include "storage/capture_file.h"

namespace draftscope {
namespace {

/// The sweep of one shard.
struct SweepShard : ShardFile {
    std::string whole;  ///< source without the shard
    std::shared_ptr<const SweepReport> sweep;
    std::map<std::string, SweepSetting> settings;  ///< by setting_text(), with the stored times
};

std::string setting_text(const SweepSetting& setting) {
    return fmt::format("{} @ {}, batch {}", pair_text(setting.drafter, setting.head), setting.tree,
                       setting.batch);
}

/// Splits "SOURCE, shard 2/4".
bool split_source(const std::string& source, SweepShard& out) {
    constexpr std::string_view mark = ", shard ";
    const std::size_t at = source.rfind(mark);
    if (at == std::string::npos) return false;
    const char *from = source.data() + at + mark.size(), *end = source.data() + source.size();
    const auto index = std::from_chars(from, end, out.shard.index);
    if (index.ec != std::errc() || index.ptr == end || *index.ptr != '/') return false;
    const auto count = std::from_chars(index.ptr + 1, end, out.shard.count);
    out.whole = source.substr(0, at);
    return count.ec == std::errc() && count.ptr == end && out.shard.index >= 1 &&
           out.shard.index <= out.shard.count;
}

Result<SweepShard> read_shard(const std::string& file) {
    DS_ASSIGN(const auto sweeps, load_sweeps(file));
    if (sweeps.empty()) return bad_input("{}: has no swept setting", file);
    if (sweeps.size() > 1)
        return bad_input("{}: has sweeps of two sources, {} and {}; pool files with one", file,
                         sweeps[0]->source, sweeps[1]->source);
    SweepShard out;
    out.file = file;
    if (!split_source(sweeps[0]->source, out))
        return bad_input("{}: its sweep ({}) is not of a shard; only shards are pooled", file,
                         sweeps[0]->source);
    out.sweep = sweeps[0];
    for (const SweepSetting& one : out.sweep->settings) out.settings.emplace(setting_text(one), one);
    return out;
}

/// Returns the shards in their order. Each must be there once.
Result<std::vector<SweepShard>> read_shards(const std::vector<std::string>& files) {
    std::vector<SweepShard> shards;
    for (const std::string& file : files) {
        DS_ASSIGN(SweepShard one, read_shard(file));
        const SweepShard& first = shards.empty() ? one : shards.front();
        if (first.whole != one.whole || first.shard.count != one.shard.count)
            return bad_input("{} and {} can't be pooled: they are sweeps of {}, {} shards, and of {}, {}",
                             first.file, file, first.whole, first.shard.count, one.whole, one.shard.count);
        shards.push_back(std::move(one));
    }
    DS_TRY(sort_shards(shards, "capture"));
    return shards;
}

/// Checks that the shards have the same settings with the same weights, and every conversation.
Status check_equal(const std::vector<SweepShard>& shards) {
    std::size_t total = 0;
    for (const SweepShard& shard : shards) total += shard.sweep->conversations;
    for (const SweepShard& shard : shards) {
        std::size_t expected = 0;
        for (std::size_t c = 0; c < total; ++c) expected += shard.shard.has(c) ? 1 : 0;
        for (const auto& [name, one] : shard.settings)
            if (one.units.size() != expected)
                return bad_input("{} in {} has {} conversations of {}, expected {}", shard_text(shard.shard),
                                 shard.file, one.units.size(), name, expected);
        for (const SweepShard& other : shards)
            for (const auto& [name, one] : other.settings) {
                const auto same = shard.settings.find(name);
                if (same == shard.settings.end())
                    return bad_input("{} in {} lacks {}; finish it by sweeping again with the same --save",
                                     shard_text(shard.shard), shard.file, name);
                if (same->second.weights != one.weights)
                    return bad_input("{} and {} can't be pooled: the weights of {} differ", other.file,
                                     shard.file, pair_text(one.drafter, one.head));
            }
    }
    return {};
}

/// Adds counts of the same shape. An empty sum stays empty.
void add_to(std::vector<std::vector<double>>& sum, const std::vector<std::vector<double>>& counts) {
    for (std::size_t d = 0; d < sum.size(); ++d)
        std::ranges::transform(sum[d], counts[d], sum[d].begin(), std::plus());
}

/// Adds up the bounds that every shard has.
Status pool_oracles(const std::vector<SweepShard>& shards, SweepReport& report) {
    for (const OracleLine& first : shards.front().sweep->oracles) {
        OracleLine whole = first;
        std::size_t found = 1;
        for (std::size_t s = 1; s < shards.size(); ++s)
            for (const OracleLine& one : shards[s].sweep->oracles) {
                if (std::tie(one.drafters, one.head, one.batch, one.levels, one.weights) !=
                        std::tie(whole.drafters, whole.head, whole.batch, whole.levels, whole.weights) ||
                    !have_same_shape(one.rounds, whole.rounds))
                    continue;
                ++found;
                add_to(whole.rounds, one.rounds);
                if (one.positions.empty()) whole.positions.clear();
                add_to(whole.positions, one.positions);
            }
        if (found != shards.size()) continue;
        DS_TRY(price_oracle(report.profile, report.context.mean(), whole));
        report.oracles.push_back(std::move(whole));
    }
    return {};
}

/// Sets what describes the sweep. Of what all shards have, such as the recording's folder, the first one's
/// counts.
void pool_about(const std::vector<SweepShard>& shards, SweepReport& report) {
    const SweepReport& first = *shards.front().sweep;
    report.recording = first.recording;
    report.max_new = first.max_new;
    report.temperature = first.temperature;
    report.run.model = first.run.model;
    report.run.artefacts = first.run.artefacts;
    for (std::size_t c = 0; c < report.conversations; ++c) {
        const std::vector<std::string>& part = shards[c % shards.size()].sweep->categories;
        const std::size_t place = c / shards.size();
        report.categories.push_back(place < part.size() ? part[place] : std::string());
    }
    for (const SweepShard& shard : shards)
        for (const std::string& note : shard.sweep->estimates) note_once(report.estimates, note);
}

/// Checks that a shard's times are those of the profile.
Status check_profile_of(const SweepShard& shard, const MachineProfile& profile) {
    for (const auto& [name, stored] : shard.settings) {
        SweepSetting priced = stored;
        DS_TRY(price_setting(profile, shard.sweep->context.mean(), priced));
        const double difference = std::abs(priced.round_ms - stored.round_ms);
        if (!(difference <= 1e-9 * stored.round_ms))
            return bad_input(
                "--profile {}: a round of {} takes {:.3f} ms by it, but {:.3f} ms in {}; name the profile "
                "that the shards were swept with",
                profile.path, name, priced.round_ms, stored.round_ms, shard.file);
    }
    return {};
}

}  // namespace

Result<bool> is_sweep_file(const std::string& path) {
    DS_ASSIGN(const auto sweeps, load_sweeps(path));
    if (sweeps.empty()) return false;
    DS_ASSIGN(const std::vector<RunRow> runs, read_runs(path));
    return runs.empty();
}

Result<std::size_t> pool_sweeps(const std::string& out, const std::vector<std::string>& files,
                                const std::string& profile) {
    std::error_code error;
    if (std::filesystem::exists(out, error)) return bad_input("{}: exists; name a new file", out);
    if (profile.empty())
        return bad_input("--profile: these captures hold sweeps; name the profile that they were swept with");
    SweepReport report;
    DS_ASSIGN(MachineProfile costs, read_profile(profile));
    set_profile(std::move(costs), report);
    DS_ASSIGN(const std::vector<SweepShard> shards, read_shards(files));
    DS_TRY(check_equal(shards));
    report.source = shards.front().whole;
    for (const SweepShard& shard : shards) {
        DS_TRY(check_profile_of(shard, report.profile));
        report.conversations += shard.sweep->conversations;
        report.context.positions += shard.sweep->context.positions;
        report.context.tokens += shard.sweep->context.tokens;
    }
    for (const auto& [name, first] : shards.front().settings) {
        SweepSetting whole = first;
        whole.units.clear();
        for (std::size_t c = 0; c < report.conversations; ++c) {
            const SweepSetting& part = shards[c % shards.size()].settings.at(name);
            whole.units.push_back(part.units[c / shards.size()]);
            whole.exact = whole.exact && part.exact;
        }
        std::ranges::fill(whole.lengths, 0.0);
        for (const SweepShard& shard : shards) {
            const std::vector<double>& part = shard.settings.at(name).lengths;
            whole.lengths.resize(std::max(whole.lengths.size(), part.size()));
            for (std::size_t i = 0; i < part.size(); ++i) whole.lengths[i] += part[i];
        }
        DS_TRY(price_setting(report.profile, report.context.mean(), whole));
        report.settings.push_back(std::move(whole));
    }
    rank_settings(report.settings);
    DS_TRY(pool_oracles(shards, report));
    pool_about(shards, report);
    report.advice = advise(report);
    DS_TRY(save_sweep(out, report));
    return report.settings.size();
}

}  // namespace draftscope
