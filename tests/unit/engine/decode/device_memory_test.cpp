#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "kernels/cpu/host_memory.h"
#include "kernels/embedding_table.h"
#include "tests/support/decode_fixture.h"
#include "tests/support/device_rig.h"
#include "tests/support/ranking_file.h"
#include "tests/support/tiny_artefacts.h"
#include "tests/support/tiny_drafter.h"

/// A session that exhausts a device's memory ends with an error, and the device stays usable.
namespace draftscope::testing {
namespace {

/// A configuration whose run is repeated with one more allocation allowed each time, until it succeeds.
struct Refused {
    const char *drafter, *head;
    bool drawn = false;  ///< drafts are sampled
};
class RefusedRounds : public ::testing::TestWithParam<Refused> {};

/// What the sessions of a test read.
struct SessionFiles {
    RankingFile ranking = RankingFile::shuffled(vocab);
    std::unique_ptr<Target> target = DecodeFixture::build(tiny(), kernels::Precision::bf16);
    TinyEagle2 eagle{target->config(), 77};
    TinyDecodingHeads hydra{target->config(), true, 82, 4, true};
};

/// A model whose sessions decode with a configuration. Each returns its error, or "no error".
class Session {
  public:
    Session(const Refused& configuration, kernels::Backend& exec, const SessionFiles& files)
        : fixture_(DecodeFixture::build(tiny(), kernels::Precision::bf16, &exec),
                   {{"eagle2", files.eagle.folder()}, {"hydra", files.hydra.folder()}},
                   files.ranking.path()) {
        fixture_.run_on(exec);
        artefacts_.emplace(fixture_);
        small_.drafter = setting_.drafter = configuration.drafter;
        small_.tree = "chain=1";
        setting_.tree = "depth=3,topk=4,nodes=12";
        small_.head = setting_.head = configuration.head;
        if (configuration.drawn) {
            setting_.temperature = 0.9;
            setting_.verify = "pq";
        }
    }
    /// Decodes a small tree, which creates the drafter and the head.
    std::string prepare() { return fixture_.decode_error(small_, prompts()[0]).message; }
    std::string decode() { return fixture_.decode_error(setting_, prompts()[1]).message; }

  private:
    DecodeFixture fixture_;
    std::optional<TinyArtefacts> artefacts_;
    DecodeCase small_, setting_;
};

TEST_P(RefusedRounds, LeaveNothingUnderWay) {
    const SessionFiles files;
    int left = 0;
    for (;; ++left) {
        TwinExec on;
        Session session(GetParam(), *on.exec, files);
        ASSERT_EQ(session.prepare(), "no error");
        on.twin->leave(left);
        const std::string error = session.decode();
        EXPECT_EQ(on.twin->under_way(), 0u) << left << " allocations: " << error;
        if (error == "no error") break;
        if (left % 5 == 0) {  // the next session has enough memory
            on.twin->leave(1 << 20);
            EXPECT_EQ(session.decode(), "no error") << left;
        }
        EXPECT_THAT(error, ::testing::ContainsRegex(
                               "out of device memory for .*: [0-9]+\\.[0-9] [KM]iB did not fit"));
    }
    EXPECT_GT(left, 20);
}
INSTANTIATE_TEST_SUITE_P(Heads, RefusedRounds,
                         ::testing::Values(Refused{"eagle2", "full"},
                                           Refused{"eagle2", "dynaspec:kmax=4,kmin=3"},
                                           Refused{"eagle2", "dynaspec:kmax=4,kmin=3", true},
                                           Refused{"eagle2", "specvocab:k=5", true},
                                           Refused{"eagle2", "full", true}, Refused{"hydra", "full"},
                                           Refused{"eagle2", "microspec:wmax=9"},
                                           Refused{"eagle2", "microspec:wmax=9,gather=indexed"}));

/// The same on the CPU, whose buffers come from host_memory().
TEST_P(RefusedRounds, EndTheSessionOnTheCpu) {
    const SessionFiles files;
    int left = 0;
    for (;; ++left) {
        const auto exec = kernels::make_cpu_backend(2);
        Session session(GetParam(), *exec, files);
        ASSERT_EQ(session.prepare(), "no error");
        kernels::limit_host_memory(left);
        const std::string error = session.decode();
        const bool enough = kernels::host_memory_left() > 0;
        kernels::limit_host_memory(-1);
        if (error == "no error") break;
        ASSERT_FALSE(enough) << error;
        EXPECT_EQ(session.decode(), "no error") << left;
        EXPECT_THAT(error,
                    ::testing::ContainsRegex("out of memory for .*: [0-9]+\\.[0-9] [KM]iB did not fit"));
    }
    EXPECT_GT(left, 15);
}

/// A head outlives sessions. If its rows did not fit in memory, a session with the head ends with an error.
TEST(DeviceMemory, RowsOfAHeadThatFoundNoMemoryAreNotForgiven) {
    const RankingFile ranking = RankingFile::shuffled(vocab);
    DecodeCase setting;
    setting.head = "fr-spec:v=6";
    int left = 0;
    for (;; ++left) {
        TwinExec on;
        auto target = DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get());
        const TinyEagle2 eagle(target->config(), 77);
        DecodeFixture fixture(std::move(target), {{"eagle2", eagle.folder()}}, ranking.path());
        fixture.run_on(*on.exec);
        Drafter& drafter = fixture.drafter("eagle2");
        on.twin->leave(left);
        (void)fixture.head(setting.head, drafter);
        const bool enough = on.twin->left() > 0;
        on.twin->leave(1 << 20);
        const Error error = fixture.decode_error(setting, prompts()[1]);
        if (enough) {
            EXPECT_EQ(error.message, "no error");
            break;
        }
        if (error.message == "no error") break;  // exactly `left` allocations were needed
        EXPECT_NE(error.message.find("memory"), std::string::npos) << error.message;
    }
    EXPECT_EQ(left, 2);  // the matrix and the list of its rows
}

TEST(DeviceMemory, ADrafterWhoseWeightsFoundNoMemorySaysSo) {
    TwinExec on;
    const auto target = DecodeFixture::build(tiny(), kernels::Precision::bf16, on.exec.get());
    const TinyEagle2 eagle(target->config(), 77);
    on.twin->leave(1000);
    ASSERT_TRUE(make_drafter("eagle2", eagle.folder(), *target, *on.exec).ok());
    const int needed = 1000 - on.twin->left();
    EXPECT_GT(needed, 5);
    for (int left = 0; left < needed; ++left) {
        TwinExec other;
        const auto verifier = DecodeFixture::build(tiny(), kernels::Precision::bf16, other.exec.get());
        other.twin->leave(left);
        const bool made = make_drafter("eagle2", eagle.folder(), *verifier, *other.exec).ok();
        EXPECT_FALSE(made && other.twin->synchronize().ok()) << left << " of " << needed;
    }
}

/// A table that did not fit in memory is not requested again until Backend::clear_out_of_memory(), which each
/// session calls.
TEST(DeviceMemory, EmbeddingsAreRequestedAgainInTheNextSession) {
    TwinExec on;
    int embedded = 0;
    kernels::EmbeddingTable table(3, 8, [&](TokenId, float* out) {
        ++embedded;
        std::fill_n(out, 8, 1.0f);
    });
    const auto load = [&] {
        const std::lock_guard lock(on.twin->submit_mutex());
        return table.load(*on.twin);
    };
    on.twin->leave(0);
    EXPECT_FALSE(load());
    on.twin->leave(100);
    EXPECT_FALSE(load());
    on.twin->clear_out_of_memory();
    EXPECT_TRUE(load());
    EXPECT_TRUE(load());
    EXPECT_EQ(embedded, 3);
}

}  // namespace
}  // namespace draftscope::testing
