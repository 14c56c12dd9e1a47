import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.CachedAtomicLong;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicInteger;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.atomic.PromotedToLock;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.SharedCountListener;
import org.apache.curator.framework.recipes.shared.SharedCountReader;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;

/** Counters, barriers and a queue. */
final class CountChecks {
    static void addTo(Checks checks) {
        checks.add("distributed_atomic_long", CountChecks::atomicLong);
        checks.add("distributed_atomic_integer_promoted_to_a_lock", CountChecks::atomicIntegerPromoted);
        checks.add("shared_count", CountChecks::sharedCount);
        checks.add("distributed_barrier", CountChecks::barrier);
        checks.add("distributed_double_barrier", CountChecks::doubleBarrier);
        checks.add("simple_distributed_queue", CountChecks::queue);
    }

    private static void atomicLong() throws Exception {
        try (Curator curator = new Curator()) {
            int threads = 4;
            int rounds = 10;
            curator.concurrently(threads, client -> {
                DistributedAtomicLong counter = new DistributedAtomicLong(client, "/counts/long", new RetryNTimes(1_000, 1));
                for (int i = 0; i < rounds; i++) {
                    Checks.that(counter.increment().succeeded(), "an increment succeeds");
                }
            });
            DistributedAtomicLong counter = new DistributedAtomicLong(curator.client(), "/counts/long", new RetryNTimes(10, 1));
            Checks.equal((long) threads * rounds, counter.get().postValue(), "total");
            Checks.that(!counter.compareAndSet(1L, 2L).succeeded(), "a stale compare-and-set fails");
            AtomicValue<Long> added = counter.add(5L);
            Checks.equal((long) threads * rounds + 5, added.postValue(), "after add");
            CachedAtomicLong cached = new CachedAtomicLong(counter, 10);
            Checks.equal(added.postValue() + 1, cached.next().postValue(), "cached next");
        }
    }

    private static void atomicIntegerPromoted() throws Exception {
        try (Curator curator = new Curator()) {
            int threads = 4;
            int rounds = 5;
            PromotedToLock promoted = PromotedToLock.builder().lockPath("/counts/lock").timeout(Curator.WAIT_SECONDS, TimeUnit.SECONDS).build();
            curator.concurrently(threads, client -> {
                DistributedAtomicInteger counter = new DistributedAtomicInteger(client, "/counts/integer", new RetryNTimes(1, 1), promoted);
                for (int i = 0; i < rounds; i++) {
                    AtomicValue<Integer> value = counter.increment();
                    while (!value.succeeded()) {
                        value = counter.increment();
                    }
                }
            });
            DistributedAtomicInteger counter = new DistributedAtomicInteger(curator.client(), "/counts/integer", new RetryNTimes(1, 1));
            Checks.equal(threads * rounds, counter.get().postValue(), "total");
        }
    }

    private static void sharedCount() throws Exception {
        try (Curator curator = new Curator(); SharedCount mine = new SharedCount(curator.client(), "/counts/shared", 5); SharedCount other = new SharedCount(curator.client(), "/counts/shared", 7)) {
            AtomicInteger seen = new AtomicInteger();
            other.addListener(new SharedCountListener() {
                @Override
                public void countHasChanged(SharedCountReader count, int newCount) {
                    seen.set(newCount);
                }

                @Override
                public void stateChanged(CuratorFramework client, ConnectionState state) {
                    return;
                }
            });
            mine.start();
            other.start();
            Checks.equal(5, other.getCount(), "the first seed wins");
            mine.setCount(6);
            Checks.eventually("the other is told", () -> seen.get() == 6 && other.getCount() == 6);
            Checks.that(other.trySetCount(other.getVersionedValue(), 8), "a current set succeeds");
            Checks.eventually("mine follows", () -> mine.getCount() == 8);
        }
    }

    private static void barrier() throws Exception {
        try (Curator curator = new Curator()) {
            DistributedBarrier gate = new DistributedBarrier(curator.client(), "/barriers/single");
            gate.setBarrier();
            DistributedBarrier waiter = new DistributedBarrier(curator.client(), "/barriers/single");
            Checks.that(!waiter.waitOnBarrier(300, TimeUnit.MILLISECONDS), "closed");
            Future<Boolean> through = Executors.newSingleThreadExecutor().submit(() -> waiter.waitOnBarrier(Curator.WAIT_SECONDS, TimeUnit.SECONDS));
            gate.removeBarrier();
            Checks.that(through.get(), "opened");
        }
    }

    private static void doubleBarrier() throws Exception {
        try (Curator curator = new Curator()) {
            int members = 3;
            AtomicInteger entered = new AtomicInteger();
            CountDownLatch left = new CountDownLatch(members);
            curator.concurrently(members, client -> {
                DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client, "/barriers/double", members);
                entered.incrementAndGet();
                Checks.that(barrier.enter(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "entered");
                Checks.equal(members, entered.get(), "nobody is through before everybody came");
                Checks.that(barrier.leave(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "left");
                left.countDown();
            });
            Checks.equal(0L, left.getCount(), "members still inside");
        }
    }

    private static void queue() throws Exception {
        try (Curator curator = new Curator()) {
            SimpleDistributedQueue producer = new SimpleDistributedQueue(curator.client(), "/queue");
            SimpleDistributedQueue consumer = new SimpleDistributedQueue(curator.client(), "/queue");
            for (int i = 0; i < 20; i++) {
                producer.offer(Integer.toString(i).getBytes());
            }
            for (int i = 0; i < 20; i++) {
                Checks.equal(Integer.toString(i), new String(consumer.take()), "first in, first out");
            }
            Checks.equal(null, consumer.poll(100, TimeUnit.MILLISECONDS), "an empty queue");
        }
    }
}
