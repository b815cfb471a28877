#include "services/gateway/http/peer_tenant.h"

#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

TEST(PeerTenantTest, AHostIsOneTenantAndEachLoopbackConnectionIsOne) {
  EXPECT_EQ(PeerTenant("192.0.2.7", 1), PeerTenant("192.0.2.7", 2));
  EXPECT_EQ(PeerTenant("::ffff:192.0.2.7", 3), PeerTenant("192.0.2.7", 2));
  EXPECT_NE(PeerTenant("192.0.2.7", 1), PeerTenant("192.0.2.8", 1));
  EXPECT_EQ(PeerTenant("2001:db8::1", 1), PeerTenant("2001:db8::ffff:1", 2));
  EXPECT_NE(PeerTenant("2001:db8::1", 1), PeerTenant("2001:db8:0:1::1", 1));
  EXPECT_NE(PeerTenant("127.0.0.1", 1), PeerTenant("127.0.0.1", 2));
  EXPECT_NE(PeerTenant("::1", 1), PeerTenant("::1", 2));
}

TEST(PeerTenantTest, GrpcsNamesMeanTheSame) {
  EXPECT_EQ(GrpcPeerTenant("ipv4:192.0.2.7:1"), PeerTenant("192.0.2.7", 9));
  EXPECT_EQ(GrpcPeerTenant("ipv4:127.0.0.1:41"), PeerTenant("127.0.0.1", 41));
  EXPECT_EQ(GrpcPeerTenant("ipv6:[::1]:41"), PeerTenant("::1", 41));
  EXPECT_EQ(GrpcPeerTenant("ipv6:%5B::1%5D:41"), PeerTenant("::1", 41));
  EXPECT_EQ(GrpcPeerTenant("unix:"), GrpcPeerTenant("unix:/run/x"));
  EXPECT_EQ(GrpcPeerTenant("127.0.0.1:41"), PeerTenant("127.0.0.1", 41));
  EXPECT_EQ(GrpcPeerTenant("[::1]:41"), PeerTenant("::1", 41));
  EXPECT_NE(GrpcPeerTenant("unix:uid=0,pid=7"), GrpcPeerTenant("unix:uid=0,pid=8"));
  EXPECT_EQ(GrpcPeerTenant(""), "peer:");
  EXPECT_EQ(GrpcPeerTenant("unknown"), "peer:unknown");
}

}  // namespace
}  // namespace tandem::gateway
