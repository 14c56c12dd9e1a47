import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.nodes.GroupMember;

/** Elections and group membership. */
final class LeaderChecks {
    static void addTo(Checks checks) {
        checks.add("leader_latch", LeaderChecks::latch);
        checks.add("leader_selector", LeaderChecks::selector);
        checks.add("leader_selector_interrupted", LeaderChecks::selectorInterrupted);
        checks.add("group_member", LeaderChecks::groupMember);
    }

    private static void latch() throws Exception {
        try (Curator curator = new Curator()) {
            List<LeaderLatch> waiting = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                LeaderLatch latch = new LeaderLatch(curator.client(), "/leaders/latch", "member-" + i);
                latch.start();
                waiting.add(latch);
            }
            Checks.eventually("three participants", () -> waiting.get(0).getParticipants().size() == 3);
            while (!waiting.isEmpty()) {
                Checks.eventually("one leads", () -> waiting.stream().filter(LeaderLatch::hasLeadership).count() == 1);
                LeaderLatch leader = waiting.stream().filter(LeaderLatch::hasLeadership).findFirst().get();
                Checks.equal(leader.getId(), waiting.get(0).getLeader().getId(), "the leader that others see");
                Checks.that(leader.await(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "await returns for the leader");
                waiting.remove(leader);
                leader.close();
            }
        }
    }

    private static void selector() throws Exception {
        try (Curator curator = new Curator()) {
            Set<String> led = ConcurrentHashMap.newKeySet();
            AtomicInteger leaders = new AtomicInteger();
            AtomicBoolean two = new AtomicBoolean();
            List<LeaderSelector> selectors = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                String id = "member-" + i;
                LeaderSelector selector = new LeaderSelector(curator.client(), "/leaders/selector", new LeaderSelectorListenerAdapter() {
                    @Override
                    public void takeLeadership(CuratorFramework client) throws Exception {
                        two.compareAndSet(false, leaders.incrementAndGet() != 1);
                        led.add(id);
                        client.checkExists().forPath("/leaders/selector");
                        leaders.decrementAndGet();
                    }
                });
                selector.setId(id);
                selector.autoRequeue();
                selector.start();
                selectors.add(selector);
            }
            Checks.eventually("everyone has led", () -> led.size() == 3);
            selectors.forEach(LeaderSelector::close);
            Checks.that(!two.get(), "one leader at a time");
        }
    }

    private static void selectorInterrupted() throws Exception {
        try (Curator curator = new Curator()) {
            AtomicBoolean interrupted = new AtomicBoolean();
            LeaderSelector selector = new LeaderSelector(curator.client(), "/leaders/interrupted", new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) throws Exception {
                    try {
                        Thread.currentThread().join();
                    } catch (InterruptedException expected) {
                        interrupted.set(true);
                    }
                }
            });
            selector.setId("only");
            selector.start();
            Checks.eventually("it leads", selector::hasLeadership);
            Checks.equal("only", selector.getLeader().getId(), "leader id");
            selector.interruptLeadership();
            Checks.eventually("it gave up", () -> interrupted.get() && !selector.hasLeadership());
            selector.close();
        }
    }

    private static void groupMember() throws Exception {
        try (Curator curator = new Curator()) {
            GroupMember first = new GroupMember(curator.client(), "/group", "first", "one".getBytes());
            GroupMember second = new GroupMember(curator.client(), "/group", "second", "two".getBytes());
            first.start();
            second.start();
            Checks.eventually("both see both", () -> first.getCurrentMembers().size() == 2 && second.getCurrentMembers().size() == 2);
            second.setThisData("changed".getBytes());
            Checks.eventually("data is seen", () -> "changed".equals(new String(first.getCurrentMembers().get("second"))));
            second.close();
            Checks.eventually("the one left is alone", () -> first.getCurrentMembers().size() == 1);
            first.close();
        }
    }
}
