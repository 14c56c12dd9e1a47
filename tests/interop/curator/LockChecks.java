import java.util.Arrays;
import java.util.Collection;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** Locks and semaphores. */
final class LockChecks {
    private static final long SHORT_WAIT_MS = 300;

    static void addTo(Checks checks) {
        checks.add("inter_process_mutex_excludes", LockChecks::mutexExcludes);
        checks.add("inter_process_mutex_is_reentrant_and_times_out", LockChecks::mutexReentersAndTimesOut);
        checks.add("inter_process_mutex_can_be_revoked", LockChecks::mutexRevoked);
        checks.add("inter_process_mutex_is_freed_by_a_closed_session", LockChecks::mutexFreedByClose);
        checks.add("inter_process_semaphore_mutex", LockChecks::semaphoreMutex);
        checks.add("inter_process_multi_lock", LockChecks::multiLock);
        checks.add("inter_process_read_write_lock", LockChecks::readWriteLock);
        checks.add("inter_process_read_write_lock_downgrades", LockChecks::readWriteLockDowngrades);
        checks.add("inter_process_semaphore_v2", LockChecks::semaphore);
    }

    private static void mutexExcludes() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().creatingParentsIfNeeded().forPath("/locks/counter", "0".getBytes());
            int threads = 4;
            int rounds = 10;
            curator.concurrently(threads, each -> {
                InterProcessMutex mutex = new InterProcessMutex(each, "/locks/mutex");
                for (int i = 0; i < rounds; i++) {
                    Checks.that(mutex.acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "the mutex is acquired");
                    int value = Integer.parseInt(new String(each.getData().forPath("/locks/counter")));
                    each.setData().forPath("/locks/counter", Integer.toString(value + 1).getBytes());
                    mutex.release();
                }
            });
            String total = new String(client.getData().forPath("/locks/counter"));
            Checks.equal(Integer.toString(threads * rounds), total, "increments under the mutex");
            Checks.equal(0, client.getChildren().forPath("/locks/mutex").size(), "nodes left behind");
        }
    }

    private static void mutexReentersAndTimesOut() throws Exception {
        try (Curator curator = new Curator()) {
            InterProcessMutex mine = new InterProcessMutex(curator.client(), "/locks/reentrant");
            InterProcessMutex other = new InterProcessMutex(curator.client(), "/locks/reentrant");
            mine.acquire();
            mine.acquire();
            mine.release();
            Checks.that(mine.isOwnedByCurrentThread(), "held until the last release");
            Checks.that(!other.acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS), "the other one times out");
            Checks.equal(1, mine.getParticipantNodes().size(), "participants after the time-out");
            mine.release();
            Checks.that(other.acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "free after the release");
            other.release();
        }
    }

    private static void mutexRevoked() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            InterProcessMutex mutex = new InterProcessMutex(client, "/locks/revocable");
            CountDownLatch asked = new CountDownLatch(1);
            mutex.makeRevocable(lock -> asked.countDown());
            mutex.acquire();
            Collection<String> participants = mutex.getParticipantNodes();
            org.apache.curator.framework.recipes.locks.Revoker.attemptRevoke(curator.client(), participants.iterator().next());
            Checks.that(asked.await(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "the holder is asked to let go");
            mutex.release();
        }
    }

    private static void mutexFreedByClose() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework holder = curator.client();
            new InterProcessMutex(holder, "/locks/abandoned").acquire();
            InterProcessMutex next = new InterProcessMutex(curator.client(), "/locks/abandoned");
            Checks.that(!next.acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS), "held by the first client");
            holder.close();
            Checks.that(next.acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "free once the holder's session is closed");
            next.release();
        }
    }

    private static void semaphoreMutex() throws Exception {
        try (Curator curator = new Curator()) {
            InterProcessSemaphoreMutex mine = new InterProcessSemaphoreMutex(curator.client(), "/locks/semaphore-mutex");
            InterProcessSemaphoreMutex other = new InterProcessSemaphoreMutex(curator.client(), "/locks/semaphore-mutex");
            mine.acquire();
            Checks.that(!other.acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS), "excluded while held");
            mine.release();
            Checks.that(other.acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "free after the release");
            other.release();
        }
    }

    private static void multiLock() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            InterProcessMultiLock both = new InterProcessMultiLock(client, Arrays.asList("/locks/multi-a", "/locks/multi-b"));
            InterProcessMutex second = new InterProcessMutex(curator.client(), "/locks/multi-b");
            second.acquire();
            Checks.that(!both.acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS), "all or nothing");
            Checks.equal(0, client.getChildren().forPath("/locks/multi-a").size(), "the first lock was given back");
            second.release();
            Checks.that(both.acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "both acquired");
            both.release();
        }
    }

    private static void readWriteLock() throws Exception {
        try (Curator curator = new Curator()) {
            InterProcessReadWriteLock first = new InterProcessReadWriteLock(curator.client(), "/locks/read-write");
            InterProcessReadWriteLock second = new InterProcessReadWriteLock(curator.client(), "/locks/read-write");
            InterProcessReadWriteLock writer = new InterProcessReadWriteLock(curator.client(), "/locks/read-write");
            first.readLock().acquire();
            Checks.that(second.readLock().acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "readers share");
            Checks.that(!writer.writeLock().acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS), "a writer waits for readers");
            first.readLock().release();
            second.readLock().release();
            Checks.that(writer.writeLock().acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "the writer gets in");
            Checks.that(!first.readLock().acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS), "a reader waits for the writer");
            writer.writeLock().release();
            Checks.that(first.readLock().acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "the reader gets in");
            first.readLock().release();
        }
    }

    private static void readWriteLockDowngrades() throws Exception {
        try (Curator curator = new Curator()) {
            InterProcessReadWriteLock lock = new InterProcessReadWriteLock(curator.client(), "/locks/downgrade");
            InterProcessReadWriteLock other = new InterProcessReadWriteLock(curator.client(), "/locks/downgrade");
            lock.writeLock().acquire();
            lock.readLock().acquire();
            lock.writeLock().release();
            Checks.that(other.readLock().acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS), "shared after the downgrade");
            Checks.that(!other.writeLock().acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS), "no upgrade while both read");
            lock.readLock().release();
            other.readLock().release();
        }
    }

    private static void semaphore() throws Exception {
        try (Curator curator = new Curator()) {
            int maxLeases = 2;
            AtomicInteger holders = new AtomicInteger();
            AtomicInteger most = new AtomicInteger();
            curator.concurrently(5, client -> {
                InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, "/locks/semaphore", maxLeases);
                for (int i = 0; i < 4; i++) {
                    Lease lease = semaphore.acquire(Curator.WAIT_SECONDS, TimeUnit.SECONDS);
                    Checks.that(lease != null, "a lease is acquired");
                    most.accumulateAndGet(holders.incrementAndGet(), Math::max);
                    client.getData().forPath("/locks");
                    holders.decrementAndGet();
                    semaphore.returnLease(lease);
                }
            });
            Checks.that(most.get() <= maxLeases, "never more than " + maxLeases + " holders, but " + most.get());
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(curator.client(), "/locks/semaphore", maxLeases);
            Collection<Lease> all = semaphore.acquire(maxLeases);
            Checks.equal(maxLeases, semaphore.getParticipantNodes().size(), "participants");
            Checks.equal(null, semaphore.acquire(SHORT_WAIT_MS, TimeUnit.MILLISECONDS), "one lease too many");
            semaphore.returnAll(all);
        }
    }
}
