import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.api.transaction.OperationType;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.OpResult;

/** Multi, as Curator's transactions. */
final class TransactionChecks {
    static void addTo(Checks checks) {
        checks.add("transaction_commits", TransactionChecks::commits);
        checks.add("transaction_rolls_back", TransactionChecks::rollsBack);
        checks.add("transaction_creates_every_mode", TransactionChecks::createsEveryMode);
    }

    private static void commits() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            List<CuratorTransactionResult> results = client.transaction().forOperations(
                    client.transactionOp().create().forPath("/transactions", "1".getBytes()),
                    client.transactionOp().create().forPath("/transactions/child"),
                    client.transactionOp().check().withVersion(0).forPath("/transactions"),
                    client.transactionOp().setData().withVersion(0).forPath("/transactions", "2".getBytes()),
                    client.transactionOp().delete().forPath("/transactions/child"));
            Checks.equal(
                    Arrays.asList(OperationType.CREATE, OperationType.CREATE, OperationType.CHECK, OperationType.SET_DATA, OperationType.DELETE),
                    results.stream().map(CuratorTransactionResult::getType).collect(Collectors.toList()), "result types");
            Checks.equal("/transactions", results.get(0).getResultPath(), "created path");
            Checks.equal(1, results.get(3).getResultStat().getVersion(), "version after setData");
            Checks.equal("2", new String(client.getData().forPath("/transactions")), "data");
            Checks.equal(0, client.getChildren().forPath("/transactions").size(), "children");
        }
    }

    private static void rollsBack() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            client.create().forPath("/rollback", "1".getBytes());
            KeeperException.BadVersionException failure = Checks.fails(KeeperException.BadVersionException.class, () -> client.transaction().forOperations(
                    client.transactionOp().setData().forPath("/rollback", "2".getBytes()),
                    client.transactionOp().create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/rollback/s-"),
                    client.transactionOp().check().withVersion(42).forPath("/rollback"),
                    client.transactionOp().delete().forPath("/rollback")));
            List<Integer> codes = failure.getResults().stream().map(result -> ((OpResult.ErrorResult) result).getErr()).collect(Collectors.toList());
            Checks.equal(Arrays.asList(0, 0, KeeperException.Code.BADVERSION.intValue(), KeeperException.Code.RUNTIMEINCONSISTENCY.intValue()), codes, "codes");
            Checks.equal("1", new String(client.getData().forPath("/rollback")), "data");
            Checks.equal("/rollback/s-0000000000", client.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/rollback/s-"), "no sequence number was used up");
        }
    }

    private static void createsEveryMode() throws Exception {
        try (Curator curator = new Curator()) {
            CuratorFramework client = curator.client();
            List<CuratorTransactionResult> results = client.transaction().forOperations(
                    client.transactionOp().create().forPath("/transaction-modes"),
                    client.transactionOp().create().withMode(CreateMode.EPHEMERAL).forPath("/transaction-modes/e"),
                    client.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/transaction-modes/s-"),
                    client.transactionOp().create().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/transaction-modes/s-"),
                    client.transactionOp().create().withMode(CreateMode.CONTAINER).forPath("/transaction-modes/c"),
                    client.transactionOp().create().withTtl(60_000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/transaction-modes/t"));
            // Curator reads the paths of plain creates only: those of a container and a TTL node come back as null.
            Checks.equal(
                    Arrays.asList("/transaction-modes", "/transaction-modes/e", "/transaction-modes/s-0000000001", "/transaction-modes/s-0000000002"),
                    results.stream().limit(4).map(CuratorTransactionResult::getResultPath).collect(Collectors.toList()), "created paths");
            Checks.equal(
                    new TreeSet<>(Arrays.asList("e", "s-0000000001", "s-0000000002", "c", "t")),
                    new TreeSet<>(client.getChildren().forPath("/transaction-modes")), "children");
        }
    }
}
