// SQLite inside Node.js: a row for each number, each a transaction. What a session is, protocol.py says.
"use strict";

const path = require("path");
const readline = require("readline");
const fs = require("fs");

const [directory, library] = process.argv.slice(2);
const Database = require(library);
const database = new Database(path.join(directory, "lab.db"));
database.pragma("journal_mode = WAL");
database.pragma("synchronous = FULL");
database.exec("CREATE TABLE IF NOT EXISTS lab (n INTEGER PRIMARY KEY, payload TEXT)");
const insert = database.prepare("INSERT INTO lab VALUES (?, ?)");

// Not by process.stdout, which writes when the loop is idle.
const say = (text) => fs.writeSync(1, `${text}\n`);

say("ready");
readline.createInterface({ input: process.stdin }).on("line", (line) => {
    const [word, first, last] = line.split(" ");
    if (word === "read") {
        const rows = database.prepare("SELECT n FROM lab").all();
        say([...rows.map((row) => row.n), "end"].join("\n"));
        return;
    }
    for (let number = Number(first); number <= Number(last); number++) {
        insert.run(number, "x".repeat(100));
        say(`ack ${number}`);
    }
});
