// npm's node-zookeeper-client against one server: HOST:PORT SUPERPASSWORD. Prints `ok NAME` or `FAIL NAME: why` for each check.
'use strict';

const assert = require('assert');
const {EventEmitter, once} = require('events');
const zookeeper = require('node-zookeeper-client');

const {ACL, CreateMode, Exception, Id, Permission} = zookeeper;
const SESSION_TIMEOUT_MS = 6000;
const WAIT_MS = 20000;
const [server, superPassword] = process.argv.slice(2);

/** A connected client. */
async function connect() {
    const client = zookeeper.createClient(server, {sessionTimeout: SESSION_TIMEOUT_MS});
    client.connect();
    await once(client, 'connected');
    return client;
}

/** Calls a method that takes a callback; answers what the callback gets, as an array if that is more than one value. */
function call(client, method, ...args) {
    return new Promise((resolve, reject) => {
        client[method](...args, (error, ...answers) => (error ? reject(error) : resolve(answers.length > 1 ? answers : answers[0])));
    });
}

function code(name) {
    return (error) => error.getCode() === Exception[name];
}

/** A watcher, and a way to wait for its next event. */
function watcher() {
    const events = new EventEmitter();
    const seen = (event) => events.emit('event', event);
    return {seen, next: async () => (await once(events, 'event', {signal: AbortSignal.timeout(WAIT_MS)}))[0]};
}

const checks = {
    async create_and_read(client) {
        assert.strictEqual(await call(client, 'create', '/node', Buffer.from('one')), '/node');
        const [data, stat] = await call(client, 'getData', '/node');
        assert.strictEqual(data.toString(), 'one');
        assert.strictEqual(stat.version, 0);
        assert.strictEqual(await call(client, 'exists', '/node-missing'), null);
        await assert.rejects(call(client, 'create', '/node'), code('NODE_EXISTS'));
        await assert.rejects(call(client, 'create', '/node-missing/child'), code('NO_NODE'));
    },

    async create_modes(client) {
        await call(client, 'mkdirp', '/modes/deep/down');
        await call(client, 'create', '/modes/e', CreateMode.EPHEMERAL);
        assert.strictEqual(await call(client, 'create', '/modes/s-', CreateMode.PERSISTENT_SEQUENTIAL), '/modes/s-0000000002');
        assert.strictEqual(await call(client, 'create', '/modes/es-', CreateMode.EPHEMERAL_SEQUENTIAL), '/modes/es-0000000003');
        const stat = await call(client, 'exists', '/modes/e');
        assert.deepStrictEqual(stat.ephemeralOwner, client.getSessionId());
        await assert.rejects(call(client, 'create', '/modes/e/child'), code('NO_CHILDREN_FOR_EPHEMERALS'));
    },

    async versions(client) {
        await call(client, 'create', '/versions', Buffer.from('one'));
        assert.strictEqual((await call(client, 'setData', '/versions', Buffer.from('two'), 0)).version, 1);
        await assert.rejects(call(client, 'setData', '/versions', Buffer.from('x'), 0), code('BAD_VERSION'));
        await assert.rejects(call(client, 'remove', '/versions', 0), code('BAD_VERSION'));
        await call(client, 'remove', '/versions', 1);
        await call(client, 'mkdirp', '/tree/a/b');
        await assert.rejects(call(client, 'remove', '/tree'), code('NOT_EMPTY'));
    },

    async children(client) {
        await call(client, 'mkdirp', '/children/a');
        await call(client, 'mkdirp', '/children/b');
        const [names, stat] = await call(client, 'getChildren', '/children');
        assert.deepStrictEqual(names.sort(), ['a', 'b']);
        assert.strictEqual(stat.numChildren, 2);
        assert.deepStrictEqual((await call(client, 'listSubTreeBFS', '/children')).sort(), ['/children', '/children/a', '/children/b']);
    },

    async watches(client, other) {
        const created = watcher();
        assert.strictEqual(await call(client, 'exists', '/watched', created.seen), null);
        let event = created.next();
        await call(other, 'create', '/watched');
        assert.strictEqual((await event).getName(), 'NODE_CREATED');
        const changed = watcher();
        const childAdded = watcher();
        await call(client, 'getData', '/watched', changed.seen);
        await call(client, 'getChildren', '/watched', childAdded.seen);
        event = changed.next();
        await call(other, 'setData', '/watched', Buffer.from('x'));
        assert.strictEqual((await event).getName(), 'NODE_DATA_CHANGED');
        event = childAdded.next();
        await call(other, 'create', '/watched/child');
        assert.strictEqual((await event).getName(), 'NODE_CHILDREN_CHANGED');
        assert.strictEqual((await event).getPath(), '/watched');
    },

    async transaction(client) {
        const commit = (transaction) => new Promise((resolve, reject) => {
            transaction.commit((error, results) => (error ? reject(error) : resolve(results)));
        });
        const results = await commit(client.transaction().create('/transaction', Buffer.from('one')).check('/transaction', 0).setData('/transaction', Buffer.from('two'), 0).create('/transaction/child').remove('/transaction/child', -1));
        assert.strictEqual(results[0].path, '/transaction');
        assert.strictEqual(results[2].stat.version, 1);
        await assert.rejects(commit(client.transaction().create('/rolled-back').check('/transaction', 42)), code('BAD_VERSION'));
        assert.strictEqual(await call(client, 'exists', '/rolled-back'), null);
    },

    async acl(client, other) {
        client.addAuthInfo('digest', Buffer.from('owner:secret'));
        const digest = new Id('digest', 'owner:Vj++wdU3sMAbt+g9TyKj1BT+usI=');
        await call(client, 'create', '/acl', Buffer.from('x'), [new ACL(Permission.ADMIN | Permission.READ, digest)], CreateMode.PERSISTENT);
        const [acls] = await call(client, 'getACL', '/acl');
        assert.strictEqual(acls[0].id.id, digest.id);
        await assert.rejects(call(other, 'getData', '/acl'), code('NO_AUTH'));
        await call(client, 'setACL', '/acl', ACL.OPEN_ACL_UNSAFE, 0);
        await call(other, 'getData', '/acl');
    },

    async superuser(client) {
        client.addAuthInfo('digest', Buffer.from(`super:${superPassword}`));
        const [before] = await call(client, 'getData', '/zookeeper/config');
        await call(client, 'setData', '/zookeeper/config', before);
    },

    async ephemerals_end(client) {
        const owner = await connect();
        const ended = watcher();
        await call(owner, 'create', '/ends', CreateMode.EPHEMERAL);
        await call(client, 'exists', '/ends', ended.seen);
        const event = ended.next();
        owner.close();
        assert.strictEqual((await event).getName(), 'NODE_DELETED');
    },

    async pipelined_creates(client) {
        const count = 1000;
        await call(client, 'create', '/pipelined');
        const paths = await Promise.all(Array.from({length: count}, () => call(client, 'create', '/pipelined/n-', CreateMode.PERSISTENT_SEQUENTIAL)));
        assert.deepStrictEqual(paths, Array.from({length: count}, (_, i) => `/pipelined/n-${String(i).padStart(10, '0')}`));
    },
};

async function main() {
    for (const [name, check] of Object.entries(checks)) {
        const client = await connect();
        const other = await connect();
        try {
            await check(client, other);
            console.log(`ok ${name}`);
        } catch (error) {
            process.exitCode = 1;
            console.log(`FAIL ${name}: ${String(error).replace(/\s+/g, ' ')}`);
            console.error(error);
        }
        client.close();
        other.close();
    }
    process.exit();
}

main();
