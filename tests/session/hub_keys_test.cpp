// SPDX-License-Identifier: Apache-2.0
// Who a hub lets in: invitations that are good, used up, late, of another, tampered with; keys that
// are barred. And what two processes do to the file at once.
#include "session/hub/hub_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/file_lock.h"
#include "core/base/storage.h"
#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "session/hub/hub_enrolment.h"
#include "session/site/invitation.h"
#include "transport/links/key_table.h"

namespace isthmus::app::this_file {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Invitation an_invitation() {
  Invitation invitation;
  invitation.number = {1, 2, 3};
  invitation.expires = 5000;
  invitation.name = "west";
  invitation.address = "hub.example.org:48199";
  invitation.hub_key = make_link_keys().public_key;
  sign(invitation, make_link_keys().secret);
  return invitation;
}

TEST(InvitationText, IsReadBackAndHoldsThePairOfItsToken) {
  const Invitation written = an_invitation();
  const std::string text = write_invitation(written);
  EXPECT_EQ(text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "._-"),
            std::string::npos);
  const auto read = read_invitation(text);
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(write_invitation(*read), text);
  EXPECT_EQ(read->name, "west");
  EXPECT_EQ(read->address, "hub.example.org:48199");
  EXPECT_EQ(read->expires, 5000);
  EXPECT_EQ(keys_of(*read).public_key, keys_of(written).public_key);
}

TEST(InvitationText, TellsDamageOfEveryCharacter) {
  const std::string text = write_invitation(an_invitation());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = damaged[i] == 'A' ? 'B' : 'A';
    const auto read = read_invitation(damaged);
    EXPECT_FALSE(read) << i;
    EXPECT_FALSE(read_invitation(text.substr(0, i))) << i;
  }
}

TEST(InvitationText, OtherFieldsMakeAnotherPair) {
  const std::string secret = make_link_keys().secret;
  Invitation a = an_invitation();
  sign(a, secret);
  Invitation b = a;
  b.uses = 2;
  sign(b, secret);
  Invitation c = a;
  c.name = "north";
  sign(c, secret);
  EXPECT_NE(keys_of(a).public_key, keys_of(b).public_key);
  EXPECT_NE(keys_of(a).public_key, keys_of(c).public_key);
  sign(b, make_link_keys().secret);  // of another hub's folder
  Invitation d = b;
  sign(d, secret);
  EXPECT_NE(keys_of(b).public_key, keys_of(d).public_key);
}

TEST(KeyTableBytes, AreReadBackAndAKeyForTwoIsRefused) {
  KeyTable table{.version = 7,
                 .members = {make_link_keys().public_key, "", make_link_keys().public_key},
                 .guests = {make_link_keys().public_key}};
  const auto read = read_key_table(write_key_table(table), 3);
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->version, 7U);
  EXPECT_EQ(read->members, table.members);
  EXPECT_TRUE(read->guests.empty());  // never sent
  EXPECT_FALSE(read_key_table(write_key_table(table), 2));
  table.members[1] = table.members[0];
  EXPECT_FALSE(read_key_table(write_key_table(table), 3));
}

class Book : public ::testing::Test {
 protected:
  Book() {
    book_.run = std::string(32, '0');
    book_.invitations.push_back({.key = invitation_, .site = "west", .expires = 100, .uses = 1});
  }
  std::string why_not(const std::string& name, const std::string& key, std::int64_t now = 50) {
    const auto done = book_.enrol(invitation_, {.name = name, .key = key}, taken_, now, "today");
    return done ? "" : done.error();
  }
  const std::string invitation_ = make_link_keys().public_key;
  const std::string key_ = make_link_keys().public_key;
  const std::string other_ = make_link_keys().public_key;
  const std::vector<std::string> taken_ = {make_link_keys().public_key};
  HubKeyBook book_;
};

TEST_F(Book, LetsAKeyInOnceAndTheSameKeyAgain) {
  EXPECT_TRUE(book_.is_invited("west", 50));
  EXPECT_EQ(why_not("west", key_), "");
  EXPECT_EQ(book_.key_of("west", ""), key_);
  EXPECT_FALSE(book_.is_invited("west", 50));
  const auto again = book_.enrol(invitation_, {.name = "west", .key = key_}, taken_, 1000, "later");
  ASSERT_TRUE(again);
  EXPECT_FALSE(*again);  // nothing to write down
  EXPECT_EQ(book_.invitations[0].used, 1U);
}

TEST_F(Book, RefusesWhatIsLateUsedUpOfAnotherOrTaken) {
  EXPECT_THAT(why_not("north", key_), HasSubstr("for site 'west', not for 'north'"));
  EXPECT_THAT(why_not("west", key_, 100), HasSubstr("expired"));
  EXPECT_FALSE(book_.is_invited("west", 100));
  EXPECT_THAT(why_not("west", taken_[0]), HasSubstr("another member's"));
  EXPECT_EQ(book_.key_of("west", ""), "");
  EXPECT_EQ(why_not("west", key_), "");
  EXPECT_THAT(why_not("west", other_), HasSubstr("used up"));
  EXPECT_EQ(book_.key_of("west", ""), key_);
}

TEST_F(Book, AnotherUseTakesTheNextKeyInPlaceOfTheFirst) {
  book_.invitations[0].uses = 2;
  EXPECT_EQ(why_not("west", key_), "");
  EXPECT_EQ(why_not("west", other_), "");
  EXPECT_EQ(book_.key_of("west", ""), other_);
  EXPECT_THAT(why_not("west", key_), HasSubstr("used up"));
}

TEST_F(Book, RevokedIsForGood) {
  EXPECT_EQ(why_not("west", key_), "");
  EXPECT_EQ(book_.revoke("west", "", "today"), key_);
  EXPECT_EQ(book_.key_of("west", ""), "");
  EXPECT_THAT(why_not("west", key_), HasSubstr("revoked"));
  EXPECT_THAT(why_not("west", other_), HasSubstr("revoked"));  // the invitation is void
  book_.invitations.push_back({.key = other_, .site = "west", .expires = 100, .uses = 1});
  const auto back = book_.enrol(other_, {.name = "west", .key = key_}, taken_, 50, "today");
  ASSERT_FALSE(back);
  EXPECT_THAT(back.error(), HasSubstr("has been revoked"));
}

TEST_F(Book, AKeyOfTheFileIsBarredToo) {
  EXPECT_EQ(book_.key_of("east", other_), other_);
  EXPECT_EQ(book_.revoke("east", other_, "today"), other_);
  EXPECT_EQ(book_.key_of("east", other_), "");
  EXPECT_EQ(book_.key_of("east", key_), key_);  // once the file has another
}

TEST_F(Book, IsReadBackAndDamageIsNamed) {
  EXPECT_EQ(why_not("west", key_), "");
  static_cast<void>(book_.revoke("east", other_, "today"));
  const std::string text = book_.write();
  EXPECT_EQ(HubKeyBook::read(text, "f").write(), text);
  EXPECT_THROW((void)HubKeyBook::read(text.substr(0, text.size() / 2), "f"), SystemError);
  EXPECT_THROW((void)HubKeyBook::read("{}", "f"), SystemError);
}

class HubFolder : public ::testing::Test {
 protected:
  HubFolder() {
    config_.sites = {SiteConfig{.name = "east", .key = make_link_keys().public_key},
                     SiteConfig{.name = "west"}};
    config_.hub.address = "127.0.0.1:1";
    config_.hub.key = hub_.public_key;
  }
  ~HubFolder() override { std::filesystem::remove_all(folder_); }
  HubKeys keys() { return HubKeys(storage_, runtime_, config_, folder_); }
  /// As the hub is asked by `own`.
  EnrolAnswer ask(HubKeys& keys, const std::string& text, const LinkKeys& own,
                  const std::string& name = "west") {
    const LinkKeys pair = keys_of(*read_invitation(text));
    EnrolRequest request{.name = name, .key = own.public_key};
    request.proof = prove_enrolment(own, hub_.public_key, pair.public_key, name, own.public_key);
    return keys.enrol(hub_, pair.public_key, write_enrol_request(request));
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      (std::string("hub_keys_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const LinkKeys hub_ = make_link_keys();
  Config config_;
  SystemStorage storage_;
  SystemRuntime runtime_;
};

TEST_F(HubFolder, WhatACommandDoesBesideItTheHubNotices) {
  HubKeys hub = keys(), command = keys();
  const std::string text = command.invite("west", "127.0.0.1:1", 3600, 1);
  EXPECT_TRUE(hub.look());
  EXPECT_EQ(hub.table().guests.size(), 1U);
  EXPECT_EQ(hub.table().members[1], "");
  const LinkKeys west = make_link_keys();
  EXPECT_TRUE(ask(hub, text, west).welcome);
  EXPECT_EQ(hub.table().members[1], west.public_key);
  EXPECT_EQ(command.revoke("west"), west.public_key);
  EXPECT_TRUE(hub.look());
  EXPECT_EQ(hub.table().members[1], "");
  EXPECT_TRUE(hub.table().guests.empty());
  EXPECT_FALSE(ask(hub, text, west).welcome);
  EXPECT_FALSE(keys().table().guests.size());  // the next process knows the same
}

// Nobody who was barred comes in again because the file is gone or an old one is back.
TEST_F(HubFolder, AFileThatSaysLessThanTheHubKnowsIsWrittenAnew) {
  for (const bool gone : {true, false}) {
    std::filesystem::remove_all(folder_);
    HubKeys hub = keys();
    const std::string text = hub.invite("west", "127.0.0.1:1", 3600, 1);
    const std::string old = read_text(storage_, folder_ / "hub.keys");
    const std::string east = config_.sites[0].key;
    EXPECT_EQ(hub.revoke("east"), east);
    if (gone) {
      std::filesystem::remove(folder_ / "hub.keys");
    } else {
      write_atomically(storage_, folder_ / "hub.keys", old);
    }
    if (gone) {
      EXPECT_FALSE(hub.look());
    } else {
      EXPECT_TRUE(ask(hub, text, make_link_keys()).welcome);
    }
    EXPECT_EQ(hub.table().members[0], "");
    EXPECT_EQ(keys().table().members[0], "") << "the next process";
  }
}

bool known(const EnrolAnswer& answer) { return answer.welcome || !answer.why.empty(); }

TEST_F(HubFolder, WhoLooksDoesNotWaitForWhoWrites) {
  HubKeys hub = keys();
  const std::string text = hub.invite("west", "127.0.0.1:1", 3600, 1);
  const LinkKeys pair = keys_of(*read_invitation(text)), own = make_link_keys();
  EnrolRequest request{.name = "west", .key = own.public_key};
  request.proof = prove_enrolment(own, hub_.public_key, pair.public_key, "west", own.public_key);
  const std::vector<std::byte> said = write_enrol_request(request);
  HubEnrolment enrolment(runtime_, [&](const std::string& key, std::span<const std::byte> bytes) {
    return hub.enrol(hub_, key, bytes);
  });
  std::optional<FileLock> command(std::in_place, folder_ / "keys.lock", "a command");
  const auto nothing = runtime_.make_wait_queue();
  for (int look = 0; look < 20; ++look) {  // while it waits for the lock
    EXPECT_FALSE(known(enrolment.ask(pair.public_key, said)));
    EXPECT_EQ(hub.book().sites.size(), 0U);
    EXPECT_FALSE(hub.look());
    (void)nothing->wait([] { return false; }, runtime_.clock().now() + 5ms);
  }
  command.reset();
  EnrolAnswer answer;
  const TimePoint deadline = runtime_.clock().now() + 30s;
  while (!known(answer) && runtime_.clock().now() < deadline) {
    answer = enrolment.ask(pair.public_key, said);
    (void)nothing->wait([] { return false; }, runtime_.clock().now() + 1ms);
  }
  EXPECT_TRUE(answer.welcome) << answer.why << ": whoever looked would have waited until then";
  EXPECT_EQ(hub.book().sites.size(), 1U);
}

TEST(HubEnrolment, OfEachInvitationTheLastQuestionIsAnswered) {
  SystemRuntime runtime;
  const auto queue = runtime.make_wait_queue();
  bool open = false;
  std::vector<std::string> heard;  // both under the lock
  HubEnrolment enrolment(runtime, [&](const std::string& key, std::span<const std::byte> bytes) {
    (void)queue->wait([&] { return open; }, kNever);
    queue->update([&] { heard.push_back(key + std::to_string(bytes.size())); });
    return EnrolAnswer{.welcome = key == "b", .why = "no"};
  });
  const std::vector<std::byte> one(1), two(2);
  EXPECT_FALSE(known(enrolment.ask("b", one)));  // perhaps at hand from now on
  for (int times = 0; times < 100; ++times) {
    EXPECT_FALSE(known(enrolment.ask("a", times % 2 == 0 ? one : two)));
    EXPECT_FALSE(known(enrolment.ask("b", one)));
  }
  queue->update([&] { open = true; });
  EnrolAnswer a, b;
  const TimePoint deadline = runtime.clock().now() + 30s;
  while (!(known(a) && known(b)) && runtime.clock().now() < deadline) {
    if (!known(a)) a = enrolment.ask("a", two);
    if (!known(b)) b = enrolment.ask("b", one);
    (void)queue->wait([] { return false; }, runtime.clock().now() + 1ms);
  }
  EXPECT_EQ(a.why, "no");
  EXPECT_TRUE(b.welcome);
  queue->update([&] { EXPECT_EQ(heard.size(), 2U); });
}

TEST(HubEnrolment, AnErrorIsARefusalAndTheNextOneIsAnswered) {
  SystemRuntime runtime;
  const auto nothing = runtime.make_wait_queue();
  HubEnrolment enrolment(runtime, [&](const std::string& key, std::span<const std::byte>) {
    if (key == "a") throw std::runtime_error("the disk is full");
    return EnrolAnswer{.welcome = true};
  });
  const auto answer_of = [&](const std::string& key) {
    EnrolAnswer answer;
    const TimePoint deadline = runtime.clock().now() + 30s;
    while (!known(answer) && runtime.clock().now() < deadline) {
      answer = enrolment.ask(key, std::vector<std::byte>(1));
      (void)nothing->wait([] { return false; }, runtime.clock().now() + 1ms);
    }
    return answer;
  };
  const EnrolAnswer refused = answer_of("a");
  EXPECT_FALSE(refused.welcome);
  EXPECT_THAT(refused.why, HasSubstr("the disk is full"));
  EXPECT_TRUE(answer_of("b").welcome);
}

TEST_F(HubFolder, AskedWithAKeyOfSomebodyElseNobodyComesIn) {
  HubKeys hub = keys();
  const std::string text = hub.invite("west", "127.0.0.1:1", 3600, 1);
  const LinkKeys pair = keys_of(*read_invitation(text));
  const LinkKeys own = make_link_keys();
  EnrolRequest request{.name = "west", .key = make_link_keys().public_key};
  request.proof = prove_enrolment(own, hub_.public_key, pair.public_key, "west", request.key);
  const EnrolAnswer answer = hub.enrol(hub_, pair.public_key, write_enrol_request(request));
  EXPECT_FALSE(answer.welcome);
  EXPECT_THAT(answer.why, HasSubstr("somebody else"));
  EXPECT_EQ(hub.table().members[1], "");
}

TEST_F(HubFolder, TheSecretIsForItsOwnerAloneAndNothingElseHoldsAToken) {
  HubKeys hub = keys();
  const std::string text = hub.invite("west", "127.0.0.1:1", 3600, 1);
  EXPECT_NO_THROW((void)read_private_file(folder_ / "hub.secret"));
  const std::string book = read_text(storage_, folder_ / "hub.keys");
  const Invitation invitation = *read_invitation(text);
  EXPECT_EQ(book.find(write_base64(std::as_bytes(std::span(invitation.token)))), std::string::npos);
  EXPECT_EQ(book.find(text), std::string::npos);
}

TEST_F(HubFolder, SitesWithAKeyAndUnknownOnesNeedNoInvitation) {
  HubKeys hub = keys();
  EXPECT_THROW((void)hub.invite("east", "127.0.0.1:1", 3600, 1), ConfigError);
  EXPECT_THROW((void)hub.invite("south", "127.0.0.1:1", 3600, 1), ConfigError);
  EXPECT_THROW((void)hub.revoke("south"), ConfigError);
}

}  // namespace
}  // namespace isthmus::app::this_file
