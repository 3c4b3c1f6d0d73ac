import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Random;

/**
 * A log that Java writes in each of its ways, by threads with small stacks that are interrupted in the middle of it: an interrupt closes the
 * channel under the thread that writes. What a session is, protocol.py says; number N is a record of its own at (N - 1) * RECORD.
 */
final class ChannelsLog {
    private static final int RECORD = 64;
    /** As little as the virtual machine gives a thread. */
    private static final long STACK_BYTES = 1;
    private static final int WAYS = 6;

    private final Path path;
    private final Random random = new Random(1);

    private ChannelsLog(Path path) {
        this.path = path;
    }

    private static ByteBuffer record(long number) {
        byte[] bytes = new byte[RECORD];
        java.util.Arrays.fill(bytes, (byte) '.');
        byte[] text = Long.toString(number).getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(text, 0, bytes, 0, text.length);
        bytes[RECORD - 1] = '\n';
        return ByteBuffer.wrap(bytes);
    }

    /** Writes one record, and returns when it is durable. */
    private void add(FileChannel channel, long number, int way) throws IOException {
        long at = (number - 1) * RECORD;
        ByteBuffer record = record(number);
        switch (way) {
            case 0 -> {
                channel.write(record, at);
                channel.force(false);
            }
            case 1 -> {
                channel.position(at);
                ByteBuffer rest = record.duplicate().position(20).slice();
                channel.write(new ByteBuffer[] {record.slice(0, 20), rest});
                channel.force(true);
            }
            case 2 -> {
                channel.transferFrom(Channels.newChannel(new java.io.ByteArrayInputStream(record.array())), at, RECORD);
                channel.force(false);
            }
            case 3 -> {
                try (FileChannel other = FileChannel.open(path, StandardOpenOption.APPEND, StandardOpenOption.DSYNC)) {
                    other.write(record);
                }
            }
            case 4 -> {
                try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rwd")) {
                    file.seek(at);
                    file.write(record.array());
                }
            }
            default -> {
                ByteBuffer direct = ByteBuffer.allocateDirect(RECORD).put(record).flip();
                channel.write(direct, at);
                channel.force(false);
            }
        }
    }

    private void write(long first, long last) throws IOException {
        long next = first;
        while (next <= last) {
            try (FileChannel channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                // Of a record that was interrupted there may be a part.
                channel.truncate((next - 1) * RECORD);
                for (; next <= last; next++) {
                    add(channel, next, random.nextInt(WAYS));
                    System.out.println("ack " + next);
                    System.out.flush();
                }
            } catch (ClosedChannelException interrupted) {
                Thread.interrupted();
            }
        }
    }

    /** Has a thread do it, which another one interrupts again and again. */
    private void writeInterrupted(long first, long last) throws InterruptedException {
        Thread thread = new Thread(null, () -> {
            try {
                write(first, last);
            } catch (IOException error) {
                error.printStackTrace();
                System.exit(1);
            }
        }, "writer", STACK_BYTES);
        thread.start();
        while (thread.isAlive()) {
            Thread.sleep(1 + random.nextInt(30));
            thread.interrupt();
        }
    }

    private void read() throws IOException {
        if (Files.exists(path)) {
            byte[] bytes = Files.readAllBytes(path);
            for (int number = 1; number * RECORD <= bytes.length; number++) {
                ByteBuffer found = ByteBuffer.wrap(bytes, (number - 1) * RECORD, RECORD);
                if (found.equals(record(number))) {
                    System.out.println(number);
                }
            }
        }
        System.out.println("end");
    }

    public static void main(String[] arguments) throws Exception {
        ChannelsLog log = new ChannelsLog(Path.of(arguments[0], "lab.wal"));
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("read")) {
                log.read();
            } else {
                log.writeInterrupted(Long.parseLong(words[1]), Long.parseLong(words[2]));
            }
        }
    }
}
